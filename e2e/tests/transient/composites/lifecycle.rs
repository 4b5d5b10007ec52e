//! Deletion of parents, and creation and deletion of composites.

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::{Value, json};

use super::hooks::{HOST, config_maps};
use super::world::{World, bound, create, role};
use crate::support::*;

#[tokio::test]
async fn a_parent_that_is_deleted_is_finalized_first() -> Result<()> {
    let hooks = &oz().await?.hooks;
    hooks.add("finalized", config_maps);
    let finalize = hooks.add("finalized/end", |request| {
        let left = request["children"]["ConfigMap.v1"]
            .as_object()
            .map_or(0, serde_json::Map::len);
        json!({"children": [], "finalized": left == 0})
    });
    let world = World::set("finalized", "InPlace", |composite| {
        let url = format!("http://{HOST}/finalized/end");
        composite["spec"]["hooks"]["finalize"] = json!({"webhook": {"url": url}});
    })
    .await?;
    world
        .fleet("one", &json!({"names": ["a"], "value": "x"}))
        .await?;
    world.value("a", "x").await?;
    let held = world.finalizers("one").await?;
    assert_eq!(held, ["metacontroller.io/compositecontroller-finalized"]);
    world.fleets().delete("one", &Default::default()).await?;
    eventually("the parent to go", CONDITION_TIMEOUT, async || {
        Ok(world.fleets().get_opt("one").await?.is_none().then_some(()))
    })
    .await?;
    ensure!(
        world.config_maps().get_opt("a").await?.is_none(),
        "its child went first"
    );
    assert_eq!(finalize.last()["finalizing"], true);
    Ok(())
}

#[tokio::test]
async fn a_composite_that_is_changed_is_another_one_and_one_that_is_deleted_is_none() -> Result<()>
{
    let hooks = &oz().await?.hooks;
    hooks.add("changing", config_maps);
    hooks.add("changing/other", |request: &Value| {
        let mut answer = config_maps(request);
        answer["children"][0]["data"]["value"] = json!("other");
        answer
    });
    let world = World::set("changing", "InPlace", |_| {}).await?;
    world
        .fleet("one", &json!({"names": ["a"], "value": "x"}))
        .await?;
    world.value("a", "x").await?;
    let url = format!("http://{HOST}/changing/other");
    let patch = Patch::Merge(json!({"spec": {"hooks": {"sync": {"webhook": {"url": url}}}}}));
    world
        .composites()
        .patch("changing", &PatchParams::default(), &patch)
        .await?;
    world.value("a", "other").await?;
    world
        .composites()
        .delete("changing", &Default::default())
        .await?;
    eventually("the composite to be gone", CONDITION_TIMEOUT, async || {
        Ok(world
            .composites()
            .get_opt("changing")
            .await?
            .is_none()
            .then_some(()))
    })
    .await?;
    // Its children stay, as those of any controller that stops.
    world.value("a", "other").await.map(drop)
}

/// Returns the definition of Barges, which a test changes, and the account's rights on them.
fn barges() -> Value {
    let verbs = ["get", "list", "watch", "patch"];
    json!({"items": [
        {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "barges.test.example.org"},
            "spec": {
                "group": "test.example.org", "scope": "Namespaced",
                "names": {"kind": "Barge", "plural": "barges", "singular": "barge", "listKind": "BargeList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                }],
            },
        },
        role("composites-barges", &json!([
            {"apiGroups": ["test.example.org"], "resources": ["barges"], "verbs": verbs},
            {"apiGroups": ["test.example.org"], "resources": ["barges/status"], "verbs": ["patch"]},
        ])),
        bound("composites-barges", "oz-composites"),
    ]})
}

#[tokio::test]
async fn parents_are_let_go_of_though_their_kind_has_lost_its_status() -> Result<()> {
    let hooks = &oz().await?.hooks;
    hooks.add("barges", config_maps);
    let finalize = hooks.add(
        "barges/end",
        |_| json!({"children": [], "finalized": false}),
    );
    let admin = Cluster::shared().await?.client("admin").await?;
    create(&admin, &barges()).await?;
    let world = World::set("barges", "InPlace", |composite| {
        let url = format!("http://{HOST}/barges/end");
        composite["spec"]["hooks"]["finalize"] = json!({"webhook": {"url": url}});
        composite["spec"]["parentResource"]["resource"] = json!("barges");
    })
    .await?;
    let kind = GroupVersionKind::gvk("test.example.org", "v1", "Barge");
    let resource = ApiResource::from_gvk_with_plural(&kind, "barges");
    let barges: Api<DynamicObject> =
        Api::namespaced_with(admin.clone(), world.fixture.name(), &resource);
    let barge = serde_json::from_value(json!({
        "apiVersion": "test.example.org/v1", "kind": "Barge",
        "metadata": {"name": "one", "labels": {"fleet": "barges"}},
        "spec": {"names": ["a"], "value": "x"},
    }))?;
    barges.create(&PostParams::default(), &barge).await?;
    world.value("a", "x").await?;

    let definitions: Api<CustomResourceDefinition> = Api::all(admin);
    let without = Patch::Json::<()>(serde_json::from_value(json!([
        {"op": "remove", "path": "/spec/versions/0/subresources"},
    ]))?);
    definitions
        .patch("barges.test.example.org", &PatchParams::default(), &without)
        .await?;
    world
        .condition_because("Accepted", "False", "StatusMissing")
        .await?;
    world
        .composites()
        .delete("barges", &Default::default())
        .await?;
    eventually("the composite to be gone", CONDITION_TIMEOUT, async || {
        let found = world.composites().get_opt("barges").await?;
        Ok(found.is_none().then_some(()))
    })
    .await?;
    let held = barges.get("one").await?.metadata.finalizers;
    ensure!(
        held.is_none_or(|held| held.is_empty()),
        "the parent is held"
    );
    ensure!(finalize.calls() == 0, "nobody is asked about it");
    // Its children stay.
    world.value("a", "x").await.map(drop)
}
