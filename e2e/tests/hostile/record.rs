//! Misuse of the audit trail: filling it, and hiding an action among many audit records.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::encode;
use oz_e2e::{
    Auditor, Options, Scene, System, TEMPLATE, exec_request, records_in, refusal, unregister,
};
use oz_testkit::{cargo_binary, eventually, fixtures};
use oz_trail::verify::Report;
use oz_trail::{Action, AuditEvent, Record};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::posting::{Registered, first_line};
use crate::{SYSTEM, Stage};

/// A duration longer than the interval in which repetitions are counted.
const SOON: Duration = Duration::from_secs(120);
/// The name of a large pod.
const LARGE: &str = "large";

/// Returns the audit records of one action in the stage's namespace.
fn records(stage: &Stage, action: Action) -> Result<Vec<Record>> {
    let mut records = records_in(&stage.oz()?.webhook.process)?;
    records.retain(|record| record.action == action && record.request.namespace == stage.name());
    Ok(records)
}

/// Returns the number of events in all these records.
pub(crate) fn counted(records: &[Record]) -> u64 {
    let count = |record: &Record| record.repeated.as_ref().map_or(1, |several| several.count);
    records.iter().map(count).sum()
}

/// Executes commands as `user`, several at once, and returns for each whether its session opened.
async fn execs(
    stage: &Stage,
    user: &str,
    pod: &str,
    commands: &[Vec<String>],
) -> Result<Vec<bool>> {
    let pods: Api<Pod> = Api::namespaced(stage.cluster.client(user).await?, stage.name());
    let all = commands.iter().map(|command| {
        let pods = pods.clone();
        async move {
            let parameters = AttachParams::default().stdout(true).stderr(false);
            pods.exec(pod, command.clone(), &parameters).await.is_ok()
        }
    });
    Ok(futures::stream::iter(all).buffered(8).collect().await)
}

fn command(text: &str) -> Vec<String> {
    text.split(' ').map(ToOwned::to_owned).collect()
}

/// A grant of alice, and the recorded sessions by it.
struct Sessions {
    pod: String,
    uid: String,
}

impl Sessions {
    async fn granted(stage: &Stage) -> Result<Self> {
        let alice = stage.requests("alice").await?;
        let granted = alice
            .granted(&exec_request("mine", TEMPLATE, "10m"))
            .await?;
        Ok(Self {
            pod: granted.pod(),
            uid: granted.request.uid().context("no UID")?,
        })
    }

    fn records(&self, stage: &Stage) -> Result<Vec<Record>> {
        let mut records = records(stage, Action::SessionOpened)?;
        records.retain(|record| record.request.uid == self.uid);
        Ok(records)
    }
}

/// Opening three hundred identical sessions of one grant in an observing namespace: the first has an audit record
/// without a count, a few further records contain the count of the others, and no session is missing from the count.
#[tokio::test]
async fn hundreds_of_sessions_that_are_allowed() -> Result<()> {
    let stage = Stage::set("sessions").await?;
    let sessions = Sessions::granted(&stage).await?;
    let opened = execs(&stage, "alice", &sessions.pod, &vec![command("true"); 300]).await?;
    let opened = opened.iter().filter(|opened| **opened).count();
    assert!(opened > 250, "{opened} of 300 sessions opened");
    let records = eventually("all sessions to be on record", SOON, async || {
        let execs = stage.cluster.audit().entries()?.in_namespace(stage.name());
        // Here the API server also opens a session if the webhook does not respond in time.
        let execs = execs.filter(|entry| entry.subresource == "exec");
        let unasked = execs.filter(|entry| !entry.failed_open.is_empty()).len();
        let records = sessions.records(&stage)?;
        let count = counted(&records);
        anyhow::ensure!(
            count + unasked as u64 >= opened as u64,
            "{count} of {opened} sessions are on record, {unasked} were opened without the webhook"
        );
        Ok(Some(records))
    })
    .await?;
    assert!(counted(&records) <= 300, "{records:?}");
    assert!(records.len() <= 8, "{} records", records.len());
    assert!(records[0].repeated.is_none());
    Ok(())
}

/// Hiding one command behind forty others in the same second, in an enforcing namespace: each session has a separate
/// audit record with its command.
#[tokio::test]
async fn command_after_forty_others_is_recorded_with_its_name() -> Result<()> {
    let stage = Stage::set("hidden").await?;
    let sessions = Sessions::granted(&stage).await?;
    stage.enforce().await?;
    let alone = command("true before");
    // The API server sees the enforcing label with a delay; until then, identical sessions are counted together.
    eventually("the namespace to be enforcing", SOON, async || {
        execs(&stage, "alice", &sessions.pod, std::slice::from_ref(&alone)).await?;
        let enforced = |record: &Record| record.details["mode"] == "enforcing";
        Ok(sessions.records(&stage)?.iter().any(enforced).then_some(()))
    })
    .await?;
    let others: Vec<_> = (0..40)
        .map(|number| command(&format!("true {number}")))
        .collect();
    let opened = execs(&stage, "alice", &sessions.pod, &others).await?;
    let telling = command("printf telling");
    // In an enforcing namespace, the API server denies a connection if the webhook does not respond in time.
    eventually("the telling session to open", SOON, async || {
        let telling = std::slice::from_ref(&telling);
        let opened = execs(&stage, "alice", &sessions.pod, telling).await?;
        Ok(opened[0].then_some(()))
    })
    .await?;
    let records = sessions.records(&stage)?;
    let of = |command: &Vec<String>| {
        let digest = encode::digest(command);
        let same = |record: &&Record| record.details["commandDigest"] == digest;
        records.iter().filter(same).collect::<Vec<_>>()
    };
    let count = opened.iter().filter(|opened| **opened).count();
    // A busy webhook denies some. The test needs many of one second.
    assert!(2 * count > others.len(), "{count} of 40 sessions opened");
    for (command, opened) in others.iter().zip(opened) {
        let found = of(command);
        assert!(found.len() == 1 || !opened, "{command:?}: {found:?}");
        assert!(found.iter().all(|record| record.repeated.is_none()));
    }
    assert!(of(&telling)[0].repeated.is_none());
    assert!(of(&telling)[0].details["command"].starts_with("printf"));
    Ok(())
}

/// Opening more connections in a minute than the quota of a user, in an enforcing namespace: the webhook denies the
/// further connections of this user and records the denial, and another user connects.
#[tokio::test]
async fn connections_beyond_the_quota_are_refused_for_their_user_alone() -> Result<()> {
    const QUOTA: usize = 10;
    let mut place = SYSTEM.write().await;
    let cluster = crate::cluster().await?;
    drop(place.take());
    let few = Options::default().set("webhook.maxConnectionsPerMinute", QUOTA);
    let system = System::start_as(cluster, &few, &Options::default()).await?;
    let scene = Scene::set(cluster, "quota").await?;
    let mut granted = Vec::new();
    for user in ["alice", "bob"] {
        let requests = scene.requests(user).await?;
        let name = format!("for-{user}");
        granted.push(
            requests
                .granted(&exec_request(&name, TEMPLATE, "10m"))
                .await?,
        );
    }
    scene.enforce().await?;
    let exec = |user: &str, pod: &str| -> Result<Option<String>> {
        Ok(refusal(&scene.exec(user, &[pod, "--", "true"]).output()?))
    };
    let (alices, bobs) = (granted[0].pod(), granted[1].pod());
    let why = eventually("alice to exceed her quota", SOON, async || {
        exec("alice", &alices)
    })
    .await?;
    assert!(why.contains("webhook.maxConnectionsPerMinute"), "{why}");
    assert_eq!(exec("bob", &bobs)?, None);
    let records = records_in(&system.webhook.process)?;
    let refused = |record: &&Record| record.action == Action::SessionRefused;
    let refused = records.iter().find(refused).context("no refusal")?;
    assert_eq!(refused.reason, "TooManyConnections");
    assert_eq!(refused.user.as_ref().context("no user")?.user, "alice");
    let enforced = |record: &&Record| {
        record.action == Action::SessionOpened && record.details["mode"] == "enforcing"
    };
    assert!(
        records
            .iter()
            .filter(enforced)
            .all(|record| record.repeated.is_none())
    );
    Ok(())
}

/// Creating and deleting one request two hundred times in a row: a few audit records with a count contain all of them.
#[tokio::test]
async fn a_request_that_comes_and_goes() -> Result<()> {
    let stage = Stage::set("churn").await?;
    let alice = stage.requests("alice").await?;
    for _ in 0..200 {
        // The webhook admits at most twenty requests in a short time.
        let request = exec_request("mine", "later", "5m");
        eventually("the request to be let in", SOON, async || {
            Ok(alice.create(&request).await.ok())
        })
        .await?;
        alice.api().delete("mine", &DeleteParams::default()).await?;
        eventually("the request to be gone", SOON, async || {
            Ok(alice.api().get_opt("mine").await?.is_none().then_some(()))
        })
        .await?;
    }
    let records = eventually("all requests to be on record", SOON, async || {
        let records = records(&stage, Action::RequestCreated)?;
        Ok((counted(&records) == 200).then_some(records))
    })
    .await?;
    assert!(records.len() <= 12, "{} records", records.len());
    Ok(())
}

/// Connecting once to another pod between three hundred denials of the same kind: the connection has a separate audit
/// record, and the others have a few records with a count.
#[tokio::test]
async fn a_telling_refusal_among_dull_ones() -> Result<()> {
    let stage = Stage::set("dull").await?;
    stage.enforce().await?;
    stage
        .standing("mallory", "pods/exec", &["get", "create"])
        .await?;
    let [dull, telling] = [0, 1].map(|index| stage.pods[index].name_any());
    let dull_ones = vec![command("id"); 150];
    execs(&stage, "mallory", &dull, &dull_ones).await?;
    execs(
        &stage,
        "mallory",
        &telling,
        &[command("cat /run/secrets/token")],
    )
    .await?;
    execs(&stage, "mallory", &dull, &dull_ones).await?;
    let records = eventually("all refusals to be on record", SOON, async || {
        let records = records(&stage, Action::SessionRefused)?;
        // The webhook does not count the second attempt of a kubectl; these are first attempts.
        Ok((counted(&records) >= 290).then_some(records))
    })
    .await?;
    let of = |pod: &str| {
        let named = |record: &&Record| record.pod.as_ref().is_some_and(|one| one.name == pod);
        records.iter().filter(named).count()
    };
    assert_eq!(of(&telling), 1, "{records:#?}");
    assert!(of(&dull) <= 12, "{}", of(&dull));
    Ok(())
}

/// Filling the cluster with more audit records than `audit.maxEvents`, or deleting old ones with `ozctl audit prune`
/// as an administrator: oz deletes the oldest and records the deletion, and the audit trail verifies as shortened; a
/// record deleted in another way is reported as missing.
#[tokio::test]
async fn more_records_than_are_kept() -> Result<()> {
    const MOST: usize = 40;
    let mut place = SYSTEM.write().await;
    let cluster = crate::cluster().await?;
    drop(place.take());
    let few = Options::default().set("audit.maxEvents", MOST);
    let mut system = System::start_with(cluster, &few).await?;
    let scene = Scene::set(cluster, "kept").await?;
    let alice = scene.requests("alice").await?;
    let auditor = Auditor::pinning(&scene.admin).await?;
    for number in 0..2 * MOST {
        let name = format!("mine-{number}");
        alice.create(&exec_request(&name, "later", "5m")).await?;
        alice.api().delete(&name, &DeleteParams::default()).await?;
    }
    let events: Api<AuditEvent> = Api::all(scene.admin.clone());
    let kept = eventually("the oldest to go", SOON, async || {
        let kept = events.list(&ListParams::default()).await?.items;
        Ok((kept.len() <= MOST).then_some(kept))
    })
    .await?;
    let on_record = |event: &AuditEvent| event.spec.record.action == Action::TrailShortened;
    assert!(kept.iter().any(on_record), "it is not on record");
    shortened(&auditor).await?;

    let order = || -> Result<Command> {
        let mut ozctl = Command::new(cargo_binary("ozctl")?);
        ozctl
            .env("KUBECONFIG", cluster.kubeconfig("admin"))
            .arg("audit");
        Ok(ozctl)
    };
    let now = Timestamp::now().to_string();
    let pruned = order()?.args(["prune", "--before", &now]).output()?;
    assert!(pruned.status.success(), "{pruned:?}");
    let report = shortened(&auditor).await?;
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.ends_with("as admin requests"))
    );
    let verified = order()?.arg("verify").output()?;
    assert!(verified.status.success(), "{verified:?}");

    // Without the webhook an administrator can delete one more record, and verification finds the gap.
    system.webhook.process.kill9();
    unregister(cluster)?;
    let last = events.list(&ListParams::default()).await?.items.pop();
    let name = last.context("no event")?.name_any();
    events.delete(&name, &DeleteParams::default()).await?;
    assert!(!auditor.report().await?.is_whole());
    Ok(())
}

/// Waits until the audit trail is complete, which requires the signature of the latest records, and returns the report.
async fn shortened(auditor: &Auditor) -> Result<Report> {
    let report = eventually("the trail to be whole", SOON, async || {
        let report = auditor.report().await?;
        Ok(report.is_whole().then_some(report))
    })
    .await?;
    let told = |note: &String| note.starts_with("shortened at");
    assert!(report.notes.iter().any(told), "{:?}", report.notes);
    Ok(report)
}

/// Creates a pod with this number of `<` in an observing namespace, in which alice may add containers. In a review each
/// `<` takes twelve bytes: six in the new pod, and six in the old one.
async fn large_pod(stage: &Stage, length: usize) -> Result<()> {
    let verbs = ["get", "patch", "update"];
    stage
        .standing("alice", "pods/ephemeralcontainers", &verbs)
        .await?;
    let large = serde_json::from_value(json!({
        "metadata": {"name": LARGE},
        "spec": {"containers": [{
            "name": fixtures::CONTAINER, "image": fixtures::IMAGE, "args": ["<".repeat(length)],
        }]},
    }))?;
    let pods = stage.api::<Pod>();
    pods.create(&PostParams::default(), &large).await?;
    Ok(())
}

/// Adds one more container to the pod.
async fn adds_a_container(stage: &Stage, added: &mut Vec<Value>) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(stage.cluster.client("alice").await?, stage.name());
    added.push(json!({
        "name": format!("debug-{}", added.len()), "image": fixtures::IMAGE,
        "targetContainerName": fixtures::CONTAINER,
    }));
    let patch = Patch::Strategic(json!({"spec": {"ephemeralContainers": added}}));
    pods.patch_ephemeral_containers(LARGE, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Returns the audit record of a container that was added to the pod.
fn record_of_a_container(stage: &Stage) -> Result<Option<Record>> {
    let named = |record: &Record| record.pod.as_ref().is_some_and(|pod| pod.name == LARGE);
    let found = records(stage, Action::SessionOpened)?
        .into_iter()
        .find(named);
    if let Some(record) = &found {
        assert_eq!(record.details["way"], "ephemeral container");
    }
    Ok(found)
}

/// Adding an ephemeral container to a pod of 1.4 MB, which takes 17 MB in a review, in an observing namespace: the
/// webhook records it as any other.
#[tokio::test]
async fn an_ephemeral_container_in_a_fat_pod() -> Result<()> {
    let stage = Stage::set("fat-debug").await?;
    large_pod(&stage, 1_410_000).await?;
    let mut added = Vec::new();
    // The API server waits for three seconds and continues without the hook. On a busy machine, a webhook compiled
    // without optimisation takes longer to read such a review.
    eventually("one to be on record", SOON, async || {
        adds_a_container(&stage, &mut added).await?;
        record_of_a_container(&stage)
    })
    .await?;
    Ok(())
}

/// Adding an ephemeral container while incomplete bodies for hooks that fail closed occupy all their memory in the
/// webhook: the webhook records it at the first attempt, since hooks that fail open have separate memory.
#[tokio::test]
async fn an_ephemeral_container_while_the_webhook_is_full() -> Result<()> {
    /// A single body occupies all the memory, and the others wait for it.
    const AT_ONCE: usize = 8;
    /// The amount of memory for large bodies.
    const BODY: usize = 24 << 20;
    let stage = Stage::alone("full").await?;
    // The review has 600 KB, which is large and is read quickly.
    large_pod(&stage, 50_000).await?;
    let registered = Registered::read(&stage.admin).await?;
    let hook = "/mutate-crds-wizardofoz-co-v1alpha1-execaccessrequest";
    let head = format!(
        "POST {}{hook} HTTP/1.1\r\nhost: oz\r\ncontent-length: {BODY}\r\n\r\n{{",
        registered.key
    );
    let announces = async || -> Result<()> {
        loop {
            let mut stream = registered.connect(&stage, b"http/1.1").await?;
            stream.write_all(head.as_bytes()).await?;
            first_line(&mut stream).await;
        }
    };
    let flood = futures::future::try_join_all((0..AT_ONCE).map(|_| announces()));
    let attempt = async {
        let full = "admission_refused_total{name=\"overload\"}";
        eventually("somebody to be turned away", SOON, async || {
            let metrics = stage.oz()?.webhook.metrics().await?;
            Ok(metrics.contains(full).then_some(()))
        })
        .await?;
        adds_a_container(&stage, &mut Vec::new()).await?;
        eventually("it to be on record", SOON, async || {
            record_of_a_container(&stage)
        })
        .await
    };
    tokio::select! {
        stopped = flood => stopped.map(drop),
        done = attempt => done.map(drop),
    }
}
