//! Denials by the API server itself: no webhook validates RegoControllers.

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use oz_api::rego::RegoController;
use serde_json::{Value, json};

use super::world::{World, rego};
use crate::support::*;

/// Writes a RegoController with each of these values in these fields: the API server refuses it, and reports the
/// reason.
async fn refused(table: &[(&str, Value, &str)]) -> Result<()> {
    oz().await?;
    let fixture = Fixture::set("rego-refused").await?;
    let resource = ApiResource::erase::<RegoController>(&());
    let api: Api<DynamicObject> = Api::all_with(fixture.admin.clone(), &resource);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let whole = serde_json::from_value(rego("rego-refused"))?;
    api.create(&dry, &whole).await?;
    for (pointer, value, said) in table {
        let mut object = rego("rego-refused");
        let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
        let Some(parent) = object.pointer_mut(parent) else {
            anyhow::bail!("there is no {pointer}");
        };
        parent[field] = value.clone();
        let refused = api.create(&dry, &serde_json::from_value(object)?).await;
        let Err(error) = refused else {
            anyhow::bail!("{pointer} {value} was let in");
        };
        let error = error.to_string();
        ensure!(error.contains(said), "{pointer} {value}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn kinds_policies_and_accounts_that_are_none_are_refused_by_the_schema() -> Result<()> {
    let kind = json!({"apiVersion": "v1", "resource": "configmaps"});
    let key = json!({"namespace": "a", "name": "a", "key": "a"});
    let policy = "/spec/policy";
    refused(&[
        (
            "/metadata/name",
            json!("x".repeat(49)),
            "48 characters at most",
        ),
        (
            "/spec/parent/apiVersion",
            json!("a/b/v1"),
            "spec.parent.apiVersion",
        ),
        (
            "/spec/parent/resource",
            json!("a/status"),
            "spec.parent.resource",
        ),
        ("/spec/children", json!([]), "spec.children"),
        ("/spec/children", json!([kind, kind]), "names a kind twice"),
        (
            "/spec/children/0/update",
            json!("Rolling"),
            "spec.children[0].update",
        ),
        (policy, json!({}), "must have inline or configMapRef"),
        ("/spec/policy/configMapRef", key, "and not both"),
        ("/spec/policy/package", json!("a-b"), "spec.policy.package"),
        ("/spec/policy/language", json!("v2"), "spec.policy.language"),
        ("/spec/runAs", Value::Null, "spec.runAs"),
    ])
    .await
}

#[tokio::test]
async fn windows_lengths_and_limits_out_of_bounds_are_refused_by_the_schema() -> Result<()> {
    let window = "/spec/window";
    let limits = "/spec/limits";
    let same = json!({"from": ".a", "until": ".a"});
    refused(&[
        (window, json!({"from": ".spec.from"}), "spec.window.until"),
        (window, json!({"until": "validUntil"}), "spec.window.until"),
        (
            window,
            json!({"until": ".status.u"}),
            "the parent's author writes",
        ),
        (window, same, "begins and ends with the same field"),
        (
            window,
            json!({"until": ".metadata.annotations.a.b"}),
            "the parent's author writes",
        ),
        (
            window,
            json!({"until": ".spec.u", "then": "Hide"}),
            "spec.window.then",
        ),
        ("/spec/policy", Value::Null, "spec.policy is missing"),
        (
            "/spec/children",
            Value::Null,
            "must have both spec.policy and spec.children",
        ),
        ("/spec/resync", json!("soon"), "must be a duration"),
        ("/spec/resync", json!(""), "must be a duration"),
        ("/spec/resync", json!("10ms"), "must be 1s at least"),
        (limits, json!({"evaluation": "2s"}), "from 1ms to 1s"),
        (limits, json!({"children": 0}), "spec.limits.children"),
        (limits, json!({"deletions": -1}), "spec.limits.deletions"),
        ("/spec/mode", json!("Maybe"), "spec.mode"),
    ])
    .await
}

#[tokio::test]
async fn missing_right_and_unlisted_account_are_reported_in_status() -> Result<()> {
    oz().await?;
    let world = World::set_rego("rego-related", |rego| {
        rego["spec"]["related"] = json!([{"apiVersion": "v1", "resource": "namespaces"}]);
    })
    .await?;
    let message = world
        .condition_because("Permitted", "False", "PermissionMissing")
        .await?;
    ensure!(message.contains("namespaces"), "{message}");
    let world = World::set_rego("rego-account", |rego| {
        rego["spec"]["runAs"]["serviceAccount"] = json!("oz-operator");
    })
    .await?;
    let message = world
        .condition_because("Permitted", "False", "AccountNotListed")
        .await?;
    ensure!(message.contains("oz-system/oz-operator"), "{message}");
    Ok(())
}
