//! Attempts by authors of parents, and by users with rights on objects next to the children.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::Neighbour;
use crate::composites::{World, config_maps};
use crate::support::*;

/// Changing or removing the expiry annotation of a child: the sealed expiry remains in force.
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

/// Creating an object with the name of a child, or a parent with a child of that name: the operator does not change the
/// object, reports a conflict, and keeps the object when the parent is deleted.
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

/// Writing a selector that matches other users' objects, so that the operator deletes them with the rights of the
/// service account: the operator adopts an object only if the author of the parent may update and delete it, or if the
/// object names the parent.
#[tokio::test]
async fn selector_does_not_adopt_objects_beyond_rights_of_author() -> Result<()> {
    oz().await?.hooks.add("taking", config_maps);
    let world = World::set("taking", "InPlace", |composite| {
        composite["spec"]["generateSelector"] = json!(false);
    })
    .await?;
    world.stamps().await?;
    let labels = json!({"crew": "one"});
    world.source("theirs", &labels, "theirs").await?;
    let (cluster, name) = (world.fixture.cluster, world.fixture.name());
    cluster.issue_kubeconfig("taker", &["takers"])?;
    let fleets = json!({
        "apiGroups": ["test.example.org"], "resources": ["fleets"], "verbs": ["get", "create", "patch"],
    });
    allow(
        &world.fixture.admin,
        name,
        "taker",
        std::slice::from_ref(&fleets),
    )
    .await?;
    let taker = cluster.client("taker").await?;
    let spec = |child: &str| {
        json!({
            "names": [child], "value": "x", "labels": labels, "selector": {"matchLabels": labels},
        })
    };
    let fleet = serde_json::from_value(json!({
        "apiVersion": "test.example.org/v1", "kind": "Fleet",
        "metadata": {"name": "one", "labels": {"fleet": "taking"}}, "spec": spec("first"),
    }))?;
    let fleets_of_theirs = world.fleets_as(taker);
    let fleet = eventually("taker to be let in", CONDITION_TIMEOUT, async || {
        let made = fleets_of_theirs
            .create(&PostParams::default(), &fleet)
            .await;
        Ok(made.ok())
    })
    .await?;
    world.value("first", "x").await?;
    let left = world.value("theirs", "theirs").await?;
    ensure!(left.metadata.owner_references.is_none(), "{left:?}");

    // This object names the parent itself.
    let uid = fleet.metadata.uid.unwrap_or_default();
    let given = json!({"crew": "one", "controller-uid": uid});
    world.source("given", &given, "given").await?;
    world.gone("given").await?;
    world.value("theirs", "theirs").await?;

    // A user who may delete the object may have it deleted.
    let maps =
        json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update", "delete"]});
    allow(&world.fixture.admin, name, "taker", &[fleets, maps]).await?;
    let mut round = 0;
    eventually(
        "it to be adopted and deleted",
        CONDITION_TIMEOUT,
        async || {
            round += 1;
            let change = Patch::Merge(json!({"spec": {"round": round}}));
            let merge = PatchParams::default();
            fleets_of_theirs.patch("one", &merge, &change).await?;
            let left = world.config_maps().get_opt("theirs").await?;
            Ok(left.is_none().then_some(()))
        },
    )
    .await
}

/// Grants a user these rights in a namespace, and no others.
async fn allow(admin: &Client, namespace: &str, user: &str, rules: &[Value]) -> Result<()> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let role = json!({"metadata": {"name": user}, "rules": rules});
    apply_as(&Api::<Role>::namespaced(admin.clone(), namespace), role).await?;
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": user},
        "subjects": [{"kind": "User", "name": user, "apiGroup": GROUP}],
    });
    let bindings = Api::<RoleBinding>::namespaced(admin.clone(), namespace);
    apply_as(&bindings, binding).await.map(drop)
}

/// Naming thousands of instants, or invalid ones: the operator creates the child of this parent, and of another parent.
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

/// Naming a window that ends before it begins, or with invalid or missing instants: the operator creates no child, and
/// for invalid or missing instants an event states the reason.
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
