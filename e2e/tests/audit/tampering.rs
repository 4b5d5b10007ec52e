//! An administrator with every right in the cluster stops oz and tampers with the trail. Each time verification reports
//! the fault and its place; each time the trail is restored before the next.

use anyhow::{Context, Result};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::core::DynamicObject;
use oz_e2e::{Auditor, NAMESPACE, Scene, System, TEMPLATE, exec_request, unregister};
use oz_trail::verify::Fault;
use oz_trail::{AuditEvent, AuditKey, Chain, Checkpoint, Entry, Medium, Writer};
use serde_json::{Value, json};

use crate::alone;
use crate::support::{clean, settled};

struct TamperingScene {
    auditor: Auditor,
    admin: kube::Client,
    before: Vec<DynamicObject>,
    checkpoints: ConfigMap,
}

impl TamperingScene {
    fn events(&self) -> Api<DynamicObject> {
        self.auditor.events()
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    /// Returns the operator's events, in the order of its chain.
    fn chain(&self) -> Vec<DynamicObject> {
        let mut events = self.before.clone();
        events.retain(|event| event.data["spec"]["component"] == "oz-operator");
        events.sort_by_key(|event| event.data["spec"]["seq"].as_u64());
        events
    }

    async fn delete(&self, event: &DynamicObject) -> Result<()> {
        let name = event.metadata.name.as_deref().context("no name")?;
        self.events().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn create(&self, event: &DynamicObject) -> Result<()> {
        let mut event = event.clone();
        event.metadata = ObjectMeta {
            name: event.metadata.name,
            labels: event.metadata.labels,
            ..ObjectMeta::default()
        };
        self.events().create(&PostParams::default(), &event).await?;
        Ok(())
    }

    async fn entry(&self, entry: Entry) -> Result<()> {
        let event = serde_json::to_value(AuditEvent::from(entry))?;
        self.create(&serde_json::from_value(event)?).await
    }

    /// Checks the finding of verification, and restores the trail.
    async fn found(&self, fault: Fault, what: &str) -> Result<()> {
        let report = self.auditor.report().await?;
        let faults: Vec<_> = report
            .problems
            .iter()
            .map(|problem| problem.fault)
            .collect();
        assert!(faults.contains(&fault), "{what}: {:#?}", report.problems);
        let first = &report.problems[0];
        assert!(
            first.place.is_some() && first.seq.is_some(),
            "{what}: {first:?}"
        );
        for event in self.events().list(&ListParams::default()).await? {
            self.delete(&event).await?;
        }
        for event in &self.before {
            self.create(event).await?;
        }
        let mut map = self.checkpoints.clone();
        map.metadata.resource_version = None;
        map.metadata.managed_fields = None;
        self.maps()
            .replace("oz-audit-checkpoints", &PostParams::default(), &map)
            .await?;
        let report = self.auditor.report().await?;
        assert!(report.is_whole(), "after {what}: {:#?}", report.problems);
        Ok(())
    }
}

/// Returns the entry of an event, to be changed and chained anew.
fn entry(event: &DynamicObject) -> Result<Entry> {
    Ok(serde_json::from_value(event.data["spec"].clone())?)
}

fn rechained(mut entry: Entry, prev: &str) -> Entry {
    entry.link.prev = prev.to_owned();
    entry.link.signature = None;
    entry.link.digest = Entry::digest_of(&entry.value());
    entry
}

#[tokio::test]
#[allow(
    clippy::too_many_lines,
    reason = "fourteen deeds, one after the other, on one trail"
)]
async fn whatever_an_administrator_does_to_the_trail_is_found() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "tamper").await?;
    let alice = scene.requests("alice").await?;
    for number in 0..4 {
        let request = exec_request(&format!("debug-{number}"), TEMPLATE, "1h");
        alice.granted(&request).await?;
    }
    let auditor = Auditor::pinning(&scene.admin).await?;
    settled(&auditor).await?;
    system.operator.process.kill9();
    system.webhook.process.kill9();
    unregister(cluster)?;
    let admin = scene.admin.clone();
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), NAMESPACE);
    let scene = TamperingScene {
        before: auditor.events().list(&ListParams::default()).await?.items,
        checkpoints: maps.get("oz-audit-checkpoints").await?,
        auditor,
        admin,
    };
    let chain = scene.chain();
    let (second, last) = (&chain[1], chain.last().context("no events")?);

    scene.delete(second).await?;
    scene.found(Fault::Missing, "1. an event deleted").await?;

    scene.delete(last).await?;
    scene
        .found(Fault::Truncated, "2. the newest event deleted")
        .await?;

    for event in &chain {
        scene.delete(event).await?;
    }
    scene
        .found(Fault::Truncated, "3. all events of a process deleted")
        .await?;

    let mut changed = second.clone();
    changed.data["spec"]["user"]["user"] = Value::from("bob");
    scene.delete(second).await?;
    scene.create(&changed).await?;
    scene.found(Fault::Altered, "4. an event replaced").await?;

    let mut forged = entry(second)?;
    forged.record.message = "nothing to see".to_owned();
    let prev = forged.link.prev.clone();
    scene.delete(second).await?;
    scene.entry(rechained(forged, &prev)).await?;
    scene
        .found(
            Fault::Unlinked,
            "5. an event replaced, with a digest of its own",
        )
        .await?;

    let mut prev = entry(&chain[0])?.link.digest;
    for event in &chain[1..] {
        let mut forged = entry(event)?;
        forged.record.message = "nothing to see".to_owned();
        let forged = rechained(forged, &prev);
        prev.clone_from(&forged.link.digest);
        scene.delete(event).await?;
        scene.entry(forged).await?;
    }
    scene
        .found(
            Fault::SignedDigestMismatch,
            "6. all that follows written anew",
        )
        .await?;

    let mut copy = second.clone();
    copy.metadata.name = Some(format!(
        "{}0",
        second.metadata.name.as_deref().unwrap_or_default()
    ));
    scene.create(&copy).await?;
    scene.found(Fault::Duplicate, "7. an event copied").await?;

    let name = second.metadata.name.as_deref().unwrap_or_default();
    let relabel = json!({"metadata": {"labels": {"oz.wizardofoz.co/user": "bob"}}});
    let patch = kube::api::Patch::Merge(&relabel);
    scene
        .events()
        .patch(name, &kube::api::PatchParams::default(), &patch)
        .await?;
    scene
        .found(Fault::Relabelled, "8. an event hidden from a search")
        .await?;

    let key = AuditKey::new(&[3; 32]);
    let writer = Writer::new("oz-operator", "oz-7", jiff::Timestamp::now(), 1);
    let (mut invented, first) = Chain::begin(writer, jiff::Timestamp::now(), &[], &key);
    let record = entry(second)?.record;
    let next = invented.append(record, &key);
    scene.entry(first).await?;
    scene.entry(next.clone()).await?;
    scene
        .found(
            Fault::UnknownKey,
            "9. a process invented, with a key of one's own",
        )
        .await?;

    // The webhook's key signs in the webhook's name alone.
    let secrets: Api<Secret> = Api::namespaced(scene.admin.clone(), NAMESPACE);
    let data = secrets.get("oz-webhook-key").await?.data;
    let stolen = data.and_then(|mut data| data.remove("audit"));
    let stolen = stolen.context("the webhook has no audit key")?.0;
    let stolen = AuditKey::new(stolen.as_slice().try_into()?);
    let writer = Writer::new("oz-operator", "oz-9", jiff::Timestamp::now(), 1);
    let (_, first) = Chain::begin(writer, jiff::Timestamp::now(), &[], &stolen);
    scene.entry(first).await?;
    scene
        .found(
            Fault::BadSignature,
            "9a. a process of the operator invented, with the key of the webhook",
        )
        .await?;

    let mut unsigned = entry(&chain[0])?;
    unsigned.link.writer.replica = "oz-8".to_owned();
    scene.entry(rechained(unsigned, "")).await?;
    scene
        .found(
            Fault::ChainStartUnsigned,
            "10. a process invented, without a key",
        )
        .await?;

    let mut map = scene.checkpoints.clone();
    let slot = "oz-operator.oz-0";
    let data = map.data.as_mut().context("no checkpoints")?;
    let mut checkpoint: Checkpoint = serde_json::from_str(&data[slot])?;
    checkpoint.head.seq -= 1;
    checkpoint.head.digest = entry(&chain[chain.len() - 2])?.link.digest;
    data.insert(slot.to_owned(), serde_json::to_string(&checkpoint)?);
    map.metadata.managed_fields = None;
    map.metadata.resource_version = None;
    scene
        .maps()
        .replace("oz-audit-checkpoints", &PostParams::default(), &map)
        .await?;
    scene.delete(last).await?;
    scene
        .found(
            Fault::BadSignature,
            "11. the newest event deleted, and the checkpoint moved",
        )
        .await?;

    // A user who reads Secrets has the current key; a key that is pinned outside of the cluster is not affected.
    assert!(secrets.get("oz-audit-key").await?.data.is_some());
    let head = next.head(&[Medium::Objects]);
    let checkpoint = Checkpoint::sign(head, &key);
    let mut map = scene.checkpoints.clone();
    map.metadata.managed_fields = None;
    map.metadata.resource_version = None;
    let data = map.data.as_mut().context("no checkpoints")?;
    data.insert(slot.to_owned(), serde_json::to_string(&checkpoint)?);
    scene
        .maps()
        .replace("oz-audit-checkpoints", &PostParams::default(), &map)
        .await?;
    scene
        .found(
            Fault::UnknownKey,
            "12. a checkpoint signed with a key of one's own",
        )
        .await?;

    let mut added = entry(last)?;
    let prev = added.link.digest.clone();
    added.link.seq += 1;
    added.link.prev_time = Some(added.record.time);
    added.record.time += SignedDuration::from_secs(10);
    scene.entry(rechained(added, &prev)).await?;
    scene
        .found(Fault::Unsigned, "13. a record added to a dead process's")
        .await?;

    let mut lone = entry(second)?;
    lone.link.writer.replica = "oz-9".to_owned();
    scene.entry(rechained(lone, "")).await?;
    scene
        .found(
            Fault::Missing,
            "14. a process invented, without its first record",
        )
        .await
}
