//! Every manifest in `examples/composites` is applied with the rights that its header names, and has the effect that
//! the
//! header describes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command};

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use oz_api::composite::CompositeController;
use oz_api::rego::RegoController;
use oz_e2e::{examples, install_example};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::world::stamps;
use crate::support::*;

/// The examples, by name.
const ALL: [&str; 3] = ["copies", "maintenance", "sprint_quota"];

async fn runs<K>(composites: Api<K>, name: &str) -> Result<()>
where
    K: oz_composites::Source,
{
    eventually("the example to run", CONDITION_TIMEOUT, async || {
        let composite = composites.get(name).await?;
        let conditions = composite.standing().map(|status| &status.conditions[..]);
        let conditions = conditions.unwrap_or_default();
        let running = oz_api::conditions::find(conditions, "Running");
        ensure!(
            running.is_some_and(|running| running.status == "True"),
            "{conditions:?}"
        );
        Ok(Some(()))
    })
    .await
}

fn parents(
    client: Client,
    kind: &str,
    plural: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("example.org", "v1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

async fn make(api: &Api<DynamicObject>, name: &str, kind: &str, spec: Value) -> Result<()> {
    let object = json!({
        "apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    let object = serde_json::from_value(object)?;
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

#[test]
fn every_example_has_a_test() -> Result<()> {
    let names: BTreeSet<String> = examples()?.into_keys().collect();
    assert_eq!(names, ALL.map(ToOwned::to_owned).into());
    Ok(())
}

#[tokio::test]
async fn a_sprint_has_its_quota_until_the_second_that_it_names() -> Result<()> {
    let fixture = Fixture::set("sprint").await?;
    install_example(fixture.cluster, "sprint_quota").await?;
    runs(
        Api::<RegoController>::all(fixture.admin.clone()),
        "sprint-quota",
    )
    .await?;
    let sprints = parents(
        fixture.admin.clone(),
        "Sprint",
        "sprints",
        Some(fixture.name()),
    );
    let quotas: Api<ResourceQuota> = Api::namespaced(fixture.admin.clone(), fixture.name());
    let from = Timestamp::now() + SignedDuration::from_secs(1);
    let until = from + SignedDuration::from_secs(15);
    let spec = json!({"pods": 50, "from": from.to_string(), "until": until.to_string()});
    make(&sprints, "rush", "Sprint", spec).await?;
    for pods in ["50", "60"] {
        eventually("its quota", CONDITION_TIMEOUT, async || {
            let quota = quotas.get_opt("sprint-rush").await?;
            let hard = quota.and_then(|quota| quota.spec?.hard?.remove("pods"));
            Ok(hard.filter(|hard| hard.0 == pods))
        })
        .await?;
        let more = Patch::Merge(json!({"spec": {"pods": 60}}));
        sprints
            .patch("rush", &PatchParams::default(), &more)
            .await?;
    }
    eventually("its quota to be gone", CONDITION_TIMEOUT, async || {
        let quota = quotas.get_opt("sprint-rush").await?;
        let is_gone = quota.is_none_or(|quota| quota.metadata.deletion_timestamp.is_some());
        Ok(is_gone.then_some(()))
    })
    .await?;
    ensure!(Timestamp::now() >= until, "it went before its time");
    Ok(())
}

#[tokio::test]
async fn a_maintenance_closes_its_namespace_and_opens_it_again() -> Result<()> {
    let fixture = Fixture::set("maintenance").await?;
    install_example(fixture.cluster, "maintenance").await?;
    let composites = Api::<CompositeController>::all(fixture.admin.clone());
    runs(composites, "maintenance").await?;
    stamps(&fixture.admin, "maintenances").await?;
    let admin = fixture.admin.clone();
    let own = parents(admin, "Maintenance", "maintenances", Some(fixture.name()));
    let policies: Api<NetworkPolicy> = Api::namespaced(fixture.admin.clone(), fixture.name());
    let from = Timestamp::now() + SignedDuration::from_secs(2);
    let until = from + SignedDuration::from_secs(15);
    let spec = json!({"from": from.to_string(), "until": until.to_string()});
    make(&own, "upgrade", "Maintenance", spec).await?;
    for (what, is_closed) in [
        ("the namespace to be closed", true),
        ("it to be open", false),
    ] {
        eventually(what, CONDITION_TIMEOUT, async || {
            let told = own.get("upgrade").await?.data["status"]["closed"] == is_closed;
            let there = policies.get_opt("upgrade").await?.is_some() == is_closed;
            Ok((told && there).then_some(()))
        })
        .await?;
        if is_closed {
            // The composite closes it again after a user opens it.
            let open = Patch::Merge(json!({"spec": {"policyTypes": ["Egress"]}}));
            policies
                .patch("upgrade", &PatchParams::default(), &open)
                .await?;
            eventually("it to be closed again", CONDITION_TIMEOUT, async || {
                let policy = policies.get_opt("upgrade").await?;
                let types = policy.and_then(|policy| policy.spec?.policy_types);
                Ok((types.is_none_or(|types| types == ["Ingress"])).then_some(()))
            })
            .await?;
        }
        let due = if is_closed { from } else { until };
        ensure!(Timestamp::now() >= due, "{what} before its time");
    }
    Ok(())
}

#[tokio::test]
async fn a_window_costs_two_writes_to_begin_and_two_to_end() -> Result<()> {
    let fixture = Fixture::set("writes").await?;
    install_example(fixture.cluster, "maintenance").await?;
    let composites = Api::<CompositeController>::all(fixture.admin.clone());
    runs(composites, "maintenance").await?;
    stamps(&fixture.admin, "maintenances").await?;
    let mark = fixture.cluster.audit().mark()?;
    let admin = fixture.admin.clone();
    let own = parents(admin, "Maintenance", "maintenances", Some(fixture.name()));
    let from = Timestamp::now() + SignedDuration::from_secs(3);
    let until = from + SignedDuration::from_secs(3);
    let spec = json!({"from": from.to_string(), "until": until.to_string()});
    make(&own, "short", "Maintenance", spec).await?;
    let writes = async || -> Result<BTreeMap<String, usize>> {
        let entries = fixture.cluster.audit().since(mark)?;
        let entries = entries.in_namespace(fixture.name());
        let entries = entries.by_user("system:serviceaccount:oz-system:oz-composites");
        let mut counts = BTreeMap::new();
        for entry in entries.writes().iter() {
            let what = format!("{} {}/{}", entry.verb, entry.resource, entry.subresource);
            *counts.entry(what).or_default() += 1;
        }
        Ok(counts)
    };
    eventually("the window to be over", CONDITION_TIMEOUT, async || {
        let status = own.get("short").await?.data["status"].clone();
        let is_over = Timestamp::now() > until && status["closed"] == false;
        let ended = writes().await?.contains_key("delete networkpolicies/");
        Ok((is_over && ended).then_some(()))
    })
    .await?;
    // The writes are the finalizer, since the parent has an expiry, and the status before it begins, when it begins,
    // and
    // when it has ended.
    let most = [
        ("patch maintenances/", 1),
        ("patch maintenances/status", 3),
        ("patch networkpolicies/", 1),
        ("create networkpolicies/", 1),
        ("delete networkpolicies/", 1),
    ];
    let writes = writes().await?;
    for (what, count) in &writes {
        let most = most.iter().find(|(known, _)| known == what);
        ensure!(
            most.is_some_and(|(_, most)| count <= most),
            "{what}: {writes:?}"
        );
    }
    let made = ["patch networkpolicies/", "create networkpolicies/"].map(|it| writes.get(it));
    assert_eq!(made.into_iter().flatten().sum::<usize>(), 1, "{writes:?}");
    Ok(())
}

/// The program of an example, run here, as long as this lives.
struct Hook(Child);

impl Drop for Hook {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program `hook.py` of the ConfigMap in `text`.
fn start(text: &str, port: u16) -> Result<Hook> {
    let documents = text.split("\n---\n");
    let documents = documents.map(serde_saphyr::from_str::<Value>);
    let documents = documents.collect::<Result<Vec<_>, _>>()?;
    let programs = documents.iter();
    let mut programs = programs.filter_map(|document| document["data"]["hook.py"].as_str());
    let program = programs.next().context("it has no program")?;
    let hook = Command::new("python3")
        .args(["-c", program])
        .env("PORT", port.to_string())
        .spawn()?;
    Ok(Hook(hook))
}

#[tokio::test]
async fn copies_follow_their_source() -> Result<()> {
    let fixture = Fixture::set("copies").await?;
    install_example(fixture.cluster, "copies").await?;
    let text = examples()?.remove("copies").context("no such example")?;
    let _hook = start(&text, oz().await?.copies)?;
    let composites = Api::<CompositeController>::all(fixture.admin.clone());
    runs(composites, "copies").await?;
    let own = fixture.name().to_owned();
    let others = [format!("{own}-a"), format!("{own}-b")];
    let namespaces: Api<Namespace> = Api::all(fixture.admin.clone());
    for name in &others {
        apply_as(&namespaces, json!({"metadata": {"name": name}})).await?;
    }
    let maps = |namespace: &str| Api::<ConfigMap>::namespaced(fixture.admin.clone(), namespace);
    let banner = |text: &str| json!({"metadata": {"name": "banner"}, "data": {"text": text}});
    apply_as(&maps(&own), banner("hello")).await?;
    let copies = parents(fixture.admin.clone(), "Copy", "copies", None);
    let spec = json!({"namespace": own, "name": "banner", "namespaces": others});
    make(&copies, &own, "Copy", spec).await?;
    let read = async |text: &str, namespace: &str| {
        eventually("a copy", CONDITION_TIMEOUT, async || {
            let copy = maps(namespace).get_opt("banner").await?;
            let data = copy.and_then(|copy| copy.data?.remove("text"));
            Ok(data.filter(|data| data == text))
        })
        .await
    };
    for name in &others {
        read("hello", name).await?;
    }
    apply_as(&maps(&own), banner("bye")).await?;
    for name in &others {
        read("bye", name).await?;
    }
    let fewer = Patch::Merge(json!({"spec": {"namespaces": [others[0]]}}));
    copies.patch(&own, &PatchParams::default(), &fewer).await?;
    eventually("the other copy to be gone", CONDITION_TIMEOUT, async || {
        Ok(maps(&others[1])
            .get_opt("banner")
            .await?
            .is_none()
            .then_some(()))
    })
    .await?;
    copies.delete(&own, &DeleteParams::default()).await?;
    for name in &others {
        namespaces.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}
