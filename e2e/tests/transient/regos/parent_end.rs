//! Parents that are deleted at the end of their window, by RegoControllers with and without a policy.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{ListParams, PostParams};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::world::World;
use crate::composites::{bound, role, stamps};
use crate::support::*;

/// Removes the policy and the children of a RegoController, which then deletes parents of this kind with its label at
/// the instant of their annotation.
fn only_ends(rego: &mut Value, api_version: &str, resource: &str) {
    let Some(spec) = rego["spec"].as_object_mut() else {
        return;
    };
    spec.remove("policy");
    spec.remove("children");
    spec["parent"]["apiVersion"] = json!(api_version);
    spec["parent"]["resource"] = json!(resource);
    let window = json!({"until": ".metadata.annotations.until", "then": "Delete"});
    spec.insert("window".to_owned(), window);
}

/// Permits the account of composites these rules.
async fn permit(world: &World, name: &str, rules: Value) -> Result<()> {
    let admin = &world.fixture.admin;
    apply_as(&Api::<ClusterRole>::all(admin.clone()), role(name, &rules)).await?;
    let bindings = Api::<ClusterRoleBinding>::all(admin.clone());
    apply_as(&bindings, bound(name, "oz-composites")).await?;
    Ok(())
}

async fn runs(world: &World) -> Result<()> {
    let running = world.condition_because("Running", "True", "Running");
    running.await.map(drop)
}

#[tokio::test]
async fn parent_is_deleted_at_its_end_after_its_children_though_its_policy_is_broken() -> Result<()>
{
    oz().await?;
    let world = World::set_rego("rego-parent-end", |rego| {
        rego["spec"]["window"] = json!({"until": ".spec.until", "then": "Delete"});
    })
    .await?;
    let rules = json!([
        {"apiGroups": ["test.example.org"], "resources": ["fleets"], "verbs": ["delete"]},
    ]);
    permit(&world, "composites-end-fleets", rules).await?;
    runs(&world).await?;
    let until = Timestamp::now() + SignedDuration::from_secs(20);
    let spec = |until: Timestamp| json!({"value": "x", "until": until.to_string()});
    world.fleet("ends", &spec(until)).await?;
    let later = until + SignedDuration::from_hours(1);
    world.fleet("stays", &spec(later)).await?;
    world.child("ends").await?;
    world.child("stays").await?;
    let (code, told) = world.ozctl(&["explain", "fleets.test.example.org/ends"])?;
    ensure!(code == Some(0), "{told}");
    let moments = told["composites"][0]["timeline"].as_array();
    let moments: Vec<_> = moments.into_iter().flatten().collect();
    let title = json!(format!("Fleet {}/ends", world.fixture.name()));
    let ends = moments.iter().any(|moment| {
        let gone = moment["go"].as_array();
        moment["at"] == json!(until) && gone.is_some_and(|gone| gone.contains(&title))
    });
    ensure!(ends, "{moments:?}");

    world
        .policy("package controller\n\nchildren contains {")
        .await?;
    world
        .condition_because("Accepted", "False", "PolicyInvalid")
        .await?;
    eventually("the parent to be gone", CONDITION_TIMEOUT, async || {
        let found = world.fleets().get_opt("ends").await?;
        Ok(found.is_none().then_some(()))
    })
    .await?;
    ensure!(Timestamp::now() >= until, "it went too early");
    world.gone("ends").await?;
    ensure!(
        world.fleets().get_opt("stays").await?.is_some(),
        "the other has not ended"
    );
    Ok(())
}

#[tokio::test]
async fn object_of_any_kind_is_deleted_at_the_instant_of_its_annotation_without_a_policy()
-> Result<()> {
    oz().await?;
    let world =
        World::set_rego("rego-only-ends", |rego| only_ends(rego, "v1", "configmaps")).await?;
    runs(&world).await?;
    let until = Timestamp::now() + SignedDuration::from_secs(5);
    let map = |name: &str, annotations: Value| {
        json!({
            "metadata": {
                "name": name, "labels": {"fleet": world.name}, "annotations": annotations,
            },
            "data": {"value": "x"},
        })
    };
    let maps = world.config_maps();
    apply_as(&maps, map("lasts", json!({}))).await?;
    let other = json!({"metadata": {"name": "other", "annotations": {"until": until.to_string()}}});
    apply_as(&maps, other).await?;
    let mark = world.fixture.cluster.audit().mark()?;
    apply_as(&maps, map("ends", json!({"until": until.to_string()}))).await?;
    world.gone("ends").await?;
    ensure!(Timestamp::now() >= until, "it went too early");
    for name in ["lasts", "other"] {
        let found: Option<ConfigMap> = maps.get_opt(name).await?;
        ensure!(found.is_some(), "{name} is gone");
    }
    // The deletion is its only write.
    let entries = world.fixture.cluster.audit().since(mark)?;
    let entries = entries.in_namespace(world.fixture.name());
    let entries = entries.by_user("system:serviceaccount:oz-system:oz-composites");
    let writes: Vec<String> = entries
        .writes()
        .iter()
        .map(|entry| format!("{} {}/{}", entry.verb, entry.resource, entry.subresource))
        .collect();
    assert_eq!(writes, ["delete configmaps/"]);
    Ok(())
}

#[tokio::test]
async fn privileged_parent_is_deleted_only_if_its_author_may_delete_it() -> Result<()> {
    oz().await?;
    let world = World::set_rego("rego-privileged-end", |rego| {
        only_ends(rego, "networking.k8s.io/v1", "networkpolicies");
    })
    .await?;
    let policies = |verbs: Value| json!([{"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": verbs}]);
    let rules = policies(json!(["get", "list", "watch", "delete"]));
    permit(&world, "composites-end-policies", rules).await?;
    let admin = &world.fixture.admin;
    let group = |name: &str| json!({"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"});
    for (name, group, verbs) in [
        ("writes-policies", group("interns"), json!(["create"])),
        ("ends-policies", group("leads"), json!(["create", "delete"])),
    ] {
        let roles = Api::<ClusterRole>::all(admin.clone());
        apply_as(&roles, role(name, &policies(verbs))).await?;
        let mut binding = bound(name, "nobody");
        binding["subjects"] = json!([group]);
        apply_as(&Api::<ClusterRoleBinding>::all(admin.clone()), binding).await?;
    }
    runs(&world).await?;
    stamps(admin, "networkpolicies").await?;
    let until = Timestamp::now() + SignedDuration::from_secs(4);
    for (user, name) in [("ina", "stays"), ("lea", "ends")] {
        let client = world.fixture.cluster.client(user).await?;
        let api = Api::<NetworkPolicy>::namespaced(client, world.fixture.name());
        let policy = serde_json::from_value(json!({
            "metadata": {
                "name": name, "labels": {"fleet": world.name},
                "annotations": {"until": until.to_string()},
            },
            "spec": {"podSelector": {}},
        }))?;
        eventually(
            "the right to create it",
            CONDITION_TIMEOUT,
            async || match api.create(&PostParams::default(), &policy).await {
                Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
                created => Ok(Some(created?)),
            },
        )
        .await?;
    }
    let all = Api::<NetworkPolicy>::namespaced(admin.clone(), world.fixture.name());
    eventually(
        "the lead's policy to be gone",
        CONDITION_TIMEOUT,
        async || Ok(all.get_opt("ends").await?.is_none().then_some(())),
    )
    .await?;
    ensure!(Timestamp::now() >= until, "it went too early");
    let events = Api::<Event>::namespaced(admin.clone(), world.fixture.name());
    let about = ListParams::default().fields("regarding.name=stays");
    let note = eventually("an event about the other", CONDITION_TIMEOUT, async || {
        let notes = events.list(&about).await?.items.into_iter();
        let mut notes = notes.filter_map(|event| event.note);
        Ok(notes.find(|note| note.contains("MayNotModify")))
    })
    .await?;
    ensure!(note.contains("ina"), "{note}");
    ensure!(all.get_opt("stays").await?.is_some(), "it is gone");
    Ok(())
}

#[tokio::test]
async fn missing_right_to_delete_parents_is_reported() -> Result<()> {
    oz().await?;
    let world = World::set_rego("rego-no-end", |rego| only_ends(rego, "v1", "services")).await?;
    let message = world
        .condition_because("Permitted", "False", "PermissionMissing")
        .await?;
    let rule =
        r#"{"apiGroups":[""],"resources":["services"],"verbs":["delete","get","list","watch"]}"#;
    ensure!(message.contains(rule), "{message}");
    Ok(())
}
