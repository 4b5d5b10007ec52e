//! A composite with a Rego policy in a ConfigMap as its function, run in process.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use oz_trail::AuditEvent;
use serde_json::json;

use super::world::{POLICIES, World};
use crate::support::*;

/// A policy for OPA before 1.0: a child within a window, both of its bounds exclusive.
const POLICY: &str = r#"package windows

children[child] {
    time.now_ns() > time.parse_rfc3339_ns(input.parent.spec.validFrom)
    time.now_ns() < time.parse_rfc3339_ns(input.parent.spec.validUntil)
    child := {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": input.parent.metadata.name},
        "data": {"value": input.parent.spec.value},
    }
}

status := {"children": count(children)}
"#;

async fn policy(admin: &kube::Client, text: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), POLICIES);
    let map = json!({"metadata": {"name": "windows"}, "data": {"windows.rego": text}});
    apply_as(&maps, map).await.map(drop)
}

#[tokio::test]
async fn a_policy_runs_in_process_and_what_it_made_ends_though_it_is_broken_by_then() -> Result<()>
{
    oz().await?;
    let world = World::set("windows", "Recreate", |composite| {
        let url = format!("http://opa.{POLICIES}:8181/v0/data/windows");
        composite["spec"]["hooks"]["sync"]["webhook"]["url"] = json!(url);
    })
    .await?;
    let message = world.condition("Accepted", "False").await?;
    ensure!(message.contains("no ConfigMap"), "{message}");
    policy(&world.fixture.admin, POLICY).await?;
    world.condition("Running", "True").await?;
    let status = world
        .composites()
        .get("windows")
        .await?
        .status
        .unwrap_or_default();
    assert_eq!(status.language.as_deref(), Some("v0"));
    ensure!(
        status
            .policy_digest
            .is_some_and(|digest| digest.starts_with("sha256:"))
    );

    let now = Timestamp::now();
    let until = now + SignedDuration::from_secs(20);
    let spec = json!({
        "validFrom": (now + SignedDuration::from_secs(1)).to_string(),
        "validUntil": until.to_string(), "value": "open",
    });
    world.fleet("one", &spec).await?;
    let child = world.value("one", "open").await?;
    ensure!(
        Timestamp::now() > now + SignedDuration::from_secs(1),
        "it was there too early"
    );
    let annotations = child.metadata.annotations.unwrap_or_default();
    ensure!(
        annotations.contains_key("oz.wizardofoz.co/until"),
        "{annotations:?}"
    );
    let held = world.finalizers("one").await?;
    ensure!(
        held == ["metacontroller.io/compositecontroller-windows"],
        "{held:?}"
    );

    policy(&world.fixture.admin, "package windows\n\nchildren[child] {").await?;
    let message = world.condition("Accepted", "False").await?;
    ensure!(message.contains("windows/windows.rego"), "{message}");
    ensure!(
        world.config_maps().get_opt("one").await?.is_some(),
        "it stays until its end"
    );
    world.gone("one").await?;
    ensure!(Timestamp::now() >= until, "it went too early");

    // A repaired policy returns the child, and a deleted composite takes along the children that would have expired.
    policy(&world.fixture.admin, POLICY).await?;
    world.condition("Running", "True").await?;
    let later = (Timestamp::now() + SignedDuration::from_hours(1)).to_string();
    world.change("one", &json!({"validUntil": later})).await?;
    world.value("one", "open").await?;
    goes_with_what_would_have_ended(&world).await
}

async fn goes_with_what_would_have_ended(world: &World) -> Result<()> {
    world
        .composites()
        .delete("windows", &Default::default())
        .await?;
    world.gone("one").await?;
    eventually("the composite to be gone", CONDITION_TIMEOUT, async || {
        Ok(world
            .composites()
            .get_opt("windows")
            .await?
            .is_none()
            .then_some(()))
    })
    .await?;
    let left = world.finalizers("one").await?;
    ensure!(left.is_empty(), "the parent is held no more");
    Ok(())
}

#[tokio::test]
async fn policy_change_is_recorded_and_other_config_maps_are_not() -> Result<()> {
    oz().await?;
    let admin = Cluster::shared().await?.client("admin").await?;
    // The text is no module, so that the bundle of other tests stays as it is.
    let map = |text: &str| json!({"metadata": {"name": "recorded"}, "data": {"text": text}});
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), POLICIES);
    let elsewhere: Api<ConfigMap> = Api::namespaced(admin.clone(), "default");
    for text in ["one", "other"] {
        apply_as(&elsewhere, map(text)).await?;
        apply_as(&maps, map(text)).await?;
    }
    maps.delete("recorded", &Default::default()).await?;
    let kind = ListParams::default().labels("oz.wizardofoz.co/kind=PolicyChanged");
    let events: Api<AuditEvent> = Api::all(admin);
    let records = eventually("three records", CONDITION_TIMEOUT, async || {
        let list = events.list(&kind).await?.items.into_iter();
        let records = list.map(|event| event.spec.record);
        let records: Vec<_> = records
            .filter(|one| one.request.name == "recorded")
            .collect();
        Ok((records.len() >= 3).then_some(records))
    })
    .await?;
    let reasons: Vec<&str> = records.iter().map(|one| one.reason.as_str()).collect();
    assert_eq!(reasons, ["Created", "Changed", "Deleted"]);
    for record in &records {
        assert_eq!(record.request.namespace, POLICIES);
        ensure!(record.user.is_some(), "{record:?}");
    }
    let detail = |index: usize, name: &str| records[index].details.get(name).cloned();
    assert_eq!(detail(0, "before"), None);
    assert_eq!(detail(0, "after"), detail(1, "before"));
    assert_eq!(detail(1, "after"), detail(2, "before"));
    ensure!(detail(0, "after") != detail(1, "after"));
    assert_eq!(detail(2, "after"), None);
    Ok(())
}
