//! The operator carries out the response of a function.

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use super::hooks::config_maps;
use super::world::World;
use crate::support::*;

#[tokio::test]
async fn children_come_change_in_place_and_go_as_the_function_says() -> Result<()> {
    let function = oz().await?.hooks.add("inplace", config_maps);
    let world = World::set("inplace", "InPlace", |_| {}).await?;
    world.condition("Running", "True").await?;
    world
        .fleet("one", &json!({"names": ["a", "b"], "value": "x"}))
        .await?;
    let before = world.value("a", "x").await?;
    world.value("b", "x").await?;
    let owner = before.metadata.owner_references.clone().unwrap_or_default();
    ensure!(
        owner.len() == 1 && owner[0].controller == Some(true) && owner[0].kind == "Fleet",
        "{owner:?}"
    );
    // The function receives the children that it returned, under the names that it knows.
    eventually(
        "the function to be shown two children",
        CONDITION_TIMEOUT,
        async || {
            let children = function.last()["children"]["ConfigMap.v1"].clone();
            Ok((children["a"]["data"]["value"] == "x" && children["b"].is_object()).then_some(()))
        },
    )
    .await?;
    let request = function.last();
    assert_eq!(request["controller"]["metadata"]["name"], "inplace");
    assert_eq!(request["parent"]["kind"], "Fleet");
    assert_eq!(request["finalizing"], false);
    assert_eq!(request["related"], json!({}));
    eventually(
        "the status that the function names",
        CONDITION_TIMEOUT,
        async || {
            let fleet = world.fleets().get("one").await?;
            let status = &fleet.data["status"];
            let is_there = status["there"] == 2
                && status["observedGeneration"] == json!(fleet.metadata.generation);
            Ok(is_there.then_some(()))
        },
    )
    .await?;

    world
        .change("one", &json!({"names": ["a"], "value": "y"}))
        .await?;
    let after = world.value("a", "y").await?;
    assert_eq!(
        before.metadata.uid, after.metadata.uid,
        "it was changed in place"
    );
    world.gone("b").await?;

    // The operator reverts changes of other users.
    let drift = Patch::Merge(json!({"data": {"value": "z"}}));
    world
        .config_maps()
        .patch("a", &PatchParams::default(), &drift)
        .await?;
    world.value("a", "y").await?;

    world.fleets().delete("one", &Default::default()).await?;
    world.gone("a").await
}

#[tokio::test]
async fn a_child_is_recreated_or_left_alone_where_that_is_declared() -> Result<()> {
    for (method, recreated) in [("Recreate", true), ("OnDelete", false)] {
        let name = method.to_lowercase();
        let function = oz().await?.hooks.add(&name, config_maps);
        let world = World::set(&name, method, |_| {}).await?;
        world
            .fleet("one", &json!({"names": ["a"], "value": "x"}))
            .await?;
        let before = world.value("a", "x").await?;
        world.change("one", &json!({"value": "y"})).await?;
        if recreated {
            let after = world.value("a", "y").await?;
            assert_ne!(before.metadata.uid, after.metadata.uid);
            continue;
        }
        eventually("the change to be known", CONDITION_TIMEOUT, async || {
            Ok((function.last()["parent"]["spec"]["value"] == "y").then_some(()))
        })
        .await?;
        // The only remaining way is a deletion, after which the operator creates it anew.
        world.config_maps().delete("a", &Default::default()).await?;
        let after = world.value("a", "y").await?;
        assert_ne!(before.metadata.uid, after.metadata.uid);
    }
    Ok(())
}

#[tokio::test]
async fn a_function_that_fails_changes_nothing_and_is_asked_again() -> Result<()> {
    let function = oz().await?.hooks.add("failing", config_maps);
    let world = World::set("failing", "InPlace", |_| {}).await?;
    world
        .fleet("one", &json!({"names": ["a"], "value": "x"}))
        .await?;
    world.value("a", "x").await?;
    for status in [500, 429] {
        function.answer_with(status);
        let calls = function.calls();
        let value = format!("after {status}");
        world
            .change("one", &json!({"names": [], "value": value}))
            .await?;
        eventually("it to be asked", CONDITION_TIMEOUT, async || {
            Ok((function.calls() > calls).then_some(()))
        })
        .await?;
        let note = world.event("SyncError").await?;
        ensure!(note.contains("failing"), "{note}");
        ensure!(
            world.config_maps().get_opt("a").await?.is_some(),
            "half an answer is none"
        );
        world.change("one", &json!({"names": ["a"]})).await?;
        function.answer_with(0);
        world.value("a", &value).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_function_says_when_it_wants_to_be_asked_again() -> Result<()> {
    let function = oz().await?.hooks.add("again", |request| {
        let mut answer = config_maps(request);
        answer["resyncAfterSeconds"] = json!(0.3);
        answer
    });
    let world = World::set("again", "InPlace", |_| {}).await?;
    world
        .fleet("one", &json!({"names": ["a"], "value": "x"}))
        .await?;
    world.value("a", "x").await?;
    let calls = function.calls();
    eventually(
        "it to be asked by time alone",
        CONDITION_TIMEOUT,
        async || Ok((function.calls() > calls + 3).then_some(())),
    )
    .await
}

#[tokio::test]
async fn a_function_that_never_says_the_same_twice_is_slowed_until_the_parent_changes() -> Result<()>
{
    let count = std::sync::atomic::AtomicUsize::new(0);
    let function = oz().await?.hooks.add("restless", move |request| {
        let mut answer = config_maps(request);
        if request["parent"]["spec"]["restless"] == true {
            let count = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            answer["children"][0]["data"]["value"] = json!(count.to_string());
            answer["status"] = json!({"there": count});
        }
        answer
    });
    let world = World::set("restless", "InPlace", |_| {}).await?;
    world.condition("Running", "True").await?;
    let spec = json!({"names": ["a"], "value": "x", "restless": true});
    world.fleet("one", &spec).await?;
    let note = world.event("SyncError").await?;
    ensure!(
        note.contains("(NotConverging)") && note.contains("a") && note.contains("its status"),
        "{note}"
    );
    ensure!(function.calls() < 40, "asked {} times", function.calls());
    // Its neighbours are not slower, and neither is a change of the Fleet itself.
    world
        .fleet("two", &json!({"names": ["b"], "value": "y"}))
        .await?;
    world.value("b", "y").await?;
    world
        .change("one", &json!({"restless": false, "value": "z"}))
        .await?;
    world.value("a", "z").await.map(drop)
}

#[tokio::test]
async fn a_change_of_the_status_alone_leaves_the_function_unasked_where_that_is_declared()
-> Result<()> {
    let function = oz().await?.hooks.add("stateless", config_maps);
    let world = World::set("stateless", "InPlace", |composite| {
        composite["spec"]["parentResource"]["ignoreStatusChanges"] = json!(true);
    })
    .await?;
    world.condition("Running", "True").await?;
    world
        .fleet("one", &json!({"names": ["a"], "value": "x"}))
        .await?;
    world.value("a", "x").await?;
    eventually("the status to be written", CONDITION_TIMEOUT, async || {
        let fleet = world.fleets().get("one").await?;
        Ok((fleet.data["status"]["there"] == 1).then_some(()))
    })
    .await?;
    let parameters = PatchParams::default();
    let mut round = 0;
    // Calls because of its child may still occur in between.
    eventually(
        "it to be asked for a label alone",
        CONDITION_TIMEOUT,
        async || {
            let asked = function.calls();
            for there in 10..15 {
                let status = Patch::Merge(json!({"status": {"there": there}}));
                let fleets = world.fleets();
                fleets.patch_status("one", &parameters, &status).await?;
            }
            round += 1;
            let label = format!("round-{round}");
            let labelled = Patch::Merge(json!({"metadata": {"labels": {"seen": label}}}));
            world.fleets().patch("one", &parameters, &labelled).await?;
            eventually("the label to be shown", CONDITION_TIMEOUT, async || {
                let shown = function.last()["parent"]["metadata"]["labels"].clone();
                Ok((shown["seen"] == label.as_str()).then_some(()))
            })
            .await?;
            Ok((function.calls() == asked + 1).then_some(()))
        },
    )
    .await
}
