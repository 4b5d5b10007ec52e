//! The objects that count as children, and the objects that do not.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use super::hooks::config_maps;
use super::world::World;
use crate::support::*;

fn orphan(name: &str, labels: &serde_json::Value) -> ConfigMap {
    let object = json!({
        "metadata": {"name": name, "labels": labels}, "data": {"value": "found"},
    });
    serde_json::from_value(object).unwrap_or_default()
}

#[tokio::test]
async fn selected_object_is_adopted_and_unselected_is_released() -> Result<()> {
    oz().await?.hooks.add("claims", config_maps);
    let world = World::set("claims", "InPlace", |composite| {
        composite["spec"]["generateSelector"] = json!(false);
    })
    .await?;
    world.stamps().await?;
    let labels = json!({"crew": "one"});
    let stray = world.config_maps();
    stray
        .create(&PostParams::default(), &orphan("a", &labels))
        .await?;
    world
        .fleet(
            "one",
            &json!({
                "names": ["a"], "value": "x", "labels": labels, "selector": {"matchLabels": labels},
            }),
        )
        .await?;
    let adopted = world.value("a", "x").await?;
    let owners = adopted.metadata.owner_references.unwrap_or_default();
    ensure!(
        owners.iter().any(|owner| owner.controller == Some(true)),
        "{owners:?}"
    );

    // Another object is created later; the function does not return it.
    stray
        .create(&PostParams::default(), &orphan("late", &labels))
        .await?;
    world.gone("late").await?;

    let relabel = Patch::Merge(json!({"metadata": {"labels": {"crew": "another"}}}));
    let before = stray.patch("a", &PatchParams::default(), &relabel).await?;
    eventually("it to be let go of", CONDITION_TIMEOUT, async || {
        let now = stray.get("a").await?;
        ensure!(now.metadata.uid == before.metadata.uid, "it was deleted");
        Ok(now
            .metadata
            .owner_references
            .unwrap_or_default()
            .is_empty()
            .then_some(()))
    })
    .await
}

#[tokio::test]
async fn an_object_of_others_is_left_alone_and_named() -> Result<()> {
    let function = oz().await?.hooks.add("conflict", config_maps);
    let world = World::set("conflict", "Recreate", |_| {}).await?;
    let theirs = orphan("a", &json!({}));
    let theirs = world
        .config_maps()
        .create(&PostParams::default(), &theirs)
        .await?;
    world
        .fleet("one", &json!({"names": ["a", "b"], "value": "x"}))
        .await?;
    world.value("b", "x").await?;
    let note = world.event("SyncError").await?;
    ensure!(
        note.contains("NameConflict") && note.contains("has no controller"),
        "{note}"
    );
    let now = world.config_maps().get("a").await?;
    assert_eq!(
        (now.metadata.uid, now.data),
        (theirs.metadata.uid, theirs.data)
    );
    ensure!(
        function.calls() < 20,
        "it is not asked without end: {}",
        function.calls()
    );
    Ok(())
}
