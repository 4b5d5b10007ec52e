//! Documents below `data` beside the policy of a RegoController.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_testkit::Cluster;
use serde_json::{Value, json};

use super::world::World;
use crate::composites::POLICIES;
use crate::support::*;

/// A policy with one child for each name in a document.
const POLICY: &str = r#"package controller

children contains {
    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
    "data": {"value": input.parent.spec.value},
} if {
    some name in data.fleet.names
}
"#;

#[tokio::test]
async fn documents_take_effect_and_children_stay_when_one_is_deleted() -> Result<()> {
    oz().await?;
    let admin = Cluster::shared().await?.client("admin").await?;
    let maps: Api<ConfigMap> = Api::namespaced(admin, POLICIES);
    let data = json!({"policy": POLICY, "fleet.yaml": "fleet: {names: [rego-a]}"});
    let map = json!({"metadata": {"name": "rego-documents"}, "data": data});
    apply_as(&maps, map).await?;
    let world = World::set_rego("rego-documents", |rego| {
        let reference = json!({"namespace": POLICIES, "name": "rego-documents", "key": "policy"});
        rego["spec"]["policy"] = json!({"configMapRef": reference});
    })
    .await?;
    world.fleet("one", &json!({"value": "x"})).await?;
    world.child("rego-a").await?;
    let change = async |data: Value| {
        let patch = Patch::Merge(json!({"data": data}));
        let parameters = PatchParams::default();
        maps.patch("rego-documents", &parameters, &patch).await
    };
    change(json!({"fleet.yaml": "fleet: {names: [rego-a, rego-b]}"})).await?;
    world.child("rego-b").await?;

    // Without the document the policy would have no children, and those that exist would be deleted.
    change(json!({"fleet.yaml": null})).await?;
    let message = world
        .condition_because("Accepted", "False", "PolicyInvalid")
        .await?;
    ensure!(message.contains("defines data.fleet.names"), "{message}");
    let other = json!({"fleet": {"names": ["rego-b"]}}).to_string();
    change(json!({"other.json": other})).await?;
    world.gone("rego-a").await?;
    world.child("rego-b").await?;

    // A document that cannot be read is named, and changes nothing.
    change(json!({"other.json": "{"})).await?;
    let message = world
        .condition_because("Accepted", "False", "PolicyInvalid")
        .await?;
    ensure!(message.contains("rego-documents/other.json"), "{message}");
    world.child("rego-b").await?;
    Ok(())
}
