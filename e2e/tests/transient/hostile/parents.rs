//! Whoever may write parents, or what lies beside children.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::Neighbour;
use crate::composites::{World, config_maps};
use crate::support::*;

/// Moving the end that is written on a child, or taking it off: the end that was sealed holds.
#[tokio::test]
async fn an_end_that_is_moved() -> Result<()> {
    oz().await?.hooks.add("moved", config_maps);
    let world = World::set("moved", "OnDelete", |composite| {
        let annotations = json!({"oz.wizardofoz.co/window-until": ".spec.until"});
        composite["metadata"]["annotations"] = annotations;
    })
    .await?;
    let until = Timestamp::now() + SignedDuration::from_secs(12);
    let spec = json!({"names": ["later", "never"], "value": "x", "until": until.to_string()});
    world.fleet("one", &spec).await?;
    for name in ["later", "never"] {
        world.value(name, "x").await?;
    }
    for (name, end) in [
        ("later", json!("2099-01-01T00:00:00Z")),
        ("never", json!(null)),
    ] {
        let annotations = json!({"oz.wizardofoz.co/until": end});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let maps = world.config_maps();
        maps.patch(name, &PatchParams::default(), &patch).await?;
    }
    for name in ["later", "never"] {
        world.gone(name).await?;
    }
    ensure!(Timestamp::now() >= until, "they went before their time");
    Ok(())
}

/// Putting an object of one's own where a child is to be, or naming a parent so that its child is somebody else's: it is
/// left alone, told as a conflict, and outlives the parent.
#[tokio::test]
async fn an_object_in_the_place_of_a_child() -> Result<()> {
    let beside = Neighbour::set("placed").await?;
    oz().await?.hooks.add("placed", config_maps);
    let world = World::set("placed", "Recreate", |_| {}).await?;
    world.source("a", &json!({}), "mine").await?;
    world
        .fleet("one", &json!({"names": ["a"], "value": "x"}))
        .await?;
    let note = world.event_on("one", "SyncError").await?;
    ensure!(note.contains("NameConflict"), "{note}");
    world
        .fleets()
        .delete("one", &DeleteParams::default())
        .await?;
    world.value("a", "mine").await?;
    beside.goes_on().await
}

/// Naming instants by the thousand, or ones that are none: looked at as far as the limit goes, and other parents are not
/// delayed.
#[tokio::test]
async fn instants_without_end() -> Result<()> {
    oz().await?;
    let world = crate::regos::World::set_rego("instants", |_| {}).await?;
    let now = Timestamp::now();
    let instants = (1..3_000).map(|second| {
        let at = now + SignedDuration::from_secs(3_600 + second);
        at.to_string()
    });
    let spec = json!({
        "value": "x", "at": instants.collect::<Vec<_>>(), "odd": ["9999-99-99T99:99:99Z", "-1", ""],
    });
    world.fleet("one", &spec).await?;
    world.fleet("two", &json!({"value": "y"})).await?;
    world.value("one", "x").await?;
    world.value("two", "y").await.map(drop)
}

/// Naming a window that ends before it begins, or is no time at all: there is no child, and the event says why.
#[tokio::test]
async fn a_window_that_is_none() -> Result<()> {
    let beside = Neighbour::set("windows").await?;
    oz().await?.hooks.add("windows", config_maps);
    let world = World::set("windows", "InPlace", |composite| {
        composite["metadata"]["annotations"] = json!({
            "oz.wizardofoz.co/window-from": ".spec.from", "oz.wizardofoz.co/window-until": ".spec.until",
        });
    })
    .await?;
    let late = Timestamp::now() + SignedDuration::from_hours(1);
    for (name, from, until) in [
        (
            "backwards",
            json!(late.to_string()),
            json!(Timestamp::now().to_string()),
        ),
        ("words", json!("soon"), json!("later")),
        ("number", json!(0), json!(1)),
        ("absent", json!(null), json!(null)),
    ] {
        let spec = json!({"names": [name], "value": "x", "from": from, "until": until});
        world.fleet(name, &spec).await?;
        if name != "backwards" {
            let note = world.event_on(name, "SyncError").await?;
            ensure!(note.contains("WindowInvalid"), "{name}: {note}");
        }
    }
    beside.goes_on().await?;
    for name in ["backwards", "words", "number", "absent"] {
        ensure!(world.config_maps().get_opt(name).await?.is_none(), "{name}");
    }
    Ok(())
}
