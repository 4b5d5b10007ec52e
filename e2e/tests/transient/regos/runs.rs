//! Policies that run, and parents that expire.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use super::world::{ONE, World};
use crate::composites::POLICIES;
use crate::support::*;

#[tokio::test]
async fn inline_rego_policy_runs_and_compile_error_names_line() -> Result<()> {
    oz().await?;
    let world = World::set_rego("rego-runs", |rego| {
        rego["spec"]["limits"] = json!({"children": 1});
    })
    .await?;
    world
        .condition_because("Running", "True", "Running")
        .await?;
    world.fleet("one", &json!({"value": "x"})).await?;
    world.child("one").await?;
    let status = world
        .status("its parent is counted, and its policy trusted", |status| {
            status.parents == Some(1) && status.accepted_digest.is_some()
        })
        .await?;
    assert_eq!(status.language.as_deref(), Some("v1"));
    assert_eq!(status.account.as_deref(), Some("oz-system/oz-composites"));
    let digest = status.policy_digest.unwrap_or_default();
    ensure!(digest.starts_with(&format!("sha256:{}", status.policy.unwrap_or_default())));
    assert_eq!(status.accepted_digest, Some(digest));

    world
        .policy("package controller\n\nchildren contains {")
        .await?;
    let message = world
        .condition_because("Accepted", "False", "PolicyInvalid")
        .await?;
    ensure!(message.contains("spec.policy.inline:3"), "{message}");
    ensure!(
        world.config_maps().get_opt("one").await?.is_some(),
        "its child stays"
    );

    let two = ONE.replace("status :=", "children contains {\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"two\"}}\n\nstatus :=");
    world.policy(&two).await?;
    world
        .condition_because("Running", "True", "Running")
        .await?;
    let events: Api<k8s_openapi::api::events::v1::Event> =
        Api::namespaced(world.fixture.admin.clone(), world.fixture.name());
    eventually(
        "an event about two children",
        CONDITION_TIMEOUT,
        async || {
            let events = events.list(&Default::default()).await?;
            let mut notes = events.items.into_iter().filter_map(|event| event.note);
            Ok(notes.find(|note| note.contains("has 2 children, of at most 1")))
        },
    )
    .await?;
    ensure!(
        world.config_maps().get_opt("two").await?.is_none(),
        "nothing of it counts"
    );
    Ok(())
}

#[tokio::test]
async fn a_window_ends_though_the_policy_is_broken_and_its_config_map_is_gone() -> Result<()> {
    oz().await?;
    let world = World::set_rego("rego-window", |rego| {
        let reference = json!({"namespace": POLICIES, "name": "rego-window", "key": "policy"});
        rego["spec"]["policy"] = json!({"configMapRef": reference});
        rego["spec"]["window"] = json!({"from": ".spec.from", "until": ".spec.until"});
    })
    .await?;
    let message = world
        .condition_because("Accepted", "False", "PolicyMissing")
        .await?;
    ensure!(
        message.contains("oz-policies/rego-window/policy"),
        "{message}"
    );
    let maps: Api<ConfigMap> = Api::namespaced(world.fixture.admin.clone(), POLICIES);
    let map = json!({"metadata": {"name": "rego-window"}, "data": {"policy": ONE}});
    apply_as(&maps, map).await?;
    world
        .condition_because("Running", "True", "Running")
        .await?;

    let now = Timestamp::now();
    let (from, until) = (
        now + SignedDuration::from_secs(2),
        now + SignedDuration::from_secs(60),
    );
    let spec = json!({"value": "x", "from": from.to_string(), "until": until.to_string()});
    world.fleet("one", &spec).await?;
    let child = world.child("one").await?;
    ensure!(Timestamp::now() >= from, "it was there too early");
    let annotations = child.metadata.annotations.unwrap_or_default();
    ensure!(
        annotations.contains_key("oz.wizardofoz.co/until"),
        "{annotations:?}"
    );
    let held = world.finalizers("one").await?;
    assert_eq!(held, ["oz.wizardofoz.co/regocontroller-rego-window"]);

    let broken = json!({"metadata": {"name": "rego-window"}, "data": {"policy": "package"}});
    apply_as(&maps, broken).await?;
    world
        .condition_because("Accepted", "False", "PolicyInvalid")
        .await?;
    maps.delete("rego-window", &Default::default()).await?;
    world
        .condition_because("Accepted", "False", "PolicyMissing")
        .await?;
    ensure!(
        world.config_maps().get_opt("one").await?.is_some(),
        "it stays until its end"
    );
    world.gone("one").await?;
    ensure!(Timestamp::now() >= until, "it went too early");
    Ok(())
}
