//! Parents that go, and composites that come and go.

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::hooks::{HOST, config_maps};
use super::world::World;
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
