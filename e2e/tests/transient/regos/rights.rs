//! Children that grant rights.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::labels;
use oz_api::names::REGISTRATION;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::world::World;
use crate::support::*;

const GROUP: &str = "rbac.authorization.k8s.io";

/// A policy in which each parent binds its role until its expiry.
const POLICY: &str = r#"package controller

children contains {
    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
    "metadata": {"name": input.parent.metadata.name},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": input.parent.spec.role,
    },
    "subjects": [{
        "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": input.parent.spec.user,
    }],
} if {
    time.now_ns() < time.parse_rfc3339_ns(input.parent.spec.until)
}
"#;

/// Creates the rights of the users: leads and interns may write Fleets; the account may bind `view`, and more than the
/// list of oz has.
async fn people(world: &World) -> Result<()> {
    let admin = &world.fixture.admin;
    let roles = Api::<ClusterRole>::all(admin.clone());
    let bindings = Api::<ClusterRoleBinding>::all(admin.clone());
    let writes = json!({
        "metadata": {"name": "writes-fleets"},
        "rules": [{
            "apiGroups": ["test.example.org"], "resources": ["fleets"],
            "verbs": ["get", "create", "patch"],
        }],
    });
    let binds = json!({
        "metadata": {"name": "composites-bind"},
        "rules": [
            {"apiGroups": [GROUP], "resources": ["rolebindings"],
             "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
            {"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["bind"]},
        ],
    });
    apply_as(&roles, writes).await?;
    apply_as(&roles, binds).await?;
    let group = |name: &str| json!({"kind": "Group", "name": name, "apiGroup": GROUP});
    let account =
        json!({"kind": "ServiceAccount", "name": "oz-composites", "namespace": "oz-system"});
    for (role, subjects) in [
        ("writes-fleets", vec![group("leads"), group("interns")]),
        ("composites-bind", vec![account]),
    ] {
        let binding = json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        });
        apply_as(&bindings, binding).await?;
    }
    Ok(())
}

/// Creates a RegoController and waits until its parents are stamped.
async fn stamping(name: &str) -> Result<World> {
    let world = World::set_rego(name, |rego| {
        rego["spec"]["policy"]["inline"] = json!(POLICY);
        rego["spec"]["children"] = json!([{
            "apiVersion": format!("{GROUP}/v1"), "resource": "rolebindings", "update": "Recreate",
        }]);
    })
    .await?;
    people(&world).await?;
    let registered = Api::<MutatingWebhookConfiguration>::all(world.fixture.admin.clone());
    eventually("its parents to be stamped", CONDITION_TIMEOUT, async || {
        let found = registered.get(REGISTRATION).await?;
        let mut hooks = found.webhooks.into_iter().flatten();
        let stamps = "stamp-parents-regocontroller.kb.io";
        Ok(hooks.find(|hook| hook.name == stamps))
    })
    .await?;
    world
        .condition_because("Running", "True", "Running")
        .await?;
    Ok(world)
}

/// Returns the API of Fleets for a user.
async fn fleets(world: &World, user: &str) -> Result<Api<DynamicObject>> {
    Ok(world.fleets_as(world.fixture.cluster.client(user).await?))
}

fn fleet(world: &World, name: &str, spec: &Value) -> Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "test.example.org/v1", "kind": "Fleet",
        "metadata": {"name": name, "labels": {"fleet": world.name}},
        "spec": spec,
    }))?)
}

/// Waits for a note of this reason about a Fleet.
async fn noted(world: &World, name: &str, reason: &str) -> Result<String> {
    use k8s_openapi::api::events::v1::Event;
    let events: Api<Event> = Api::namespaced(world.fixture.admin.clone(), world.fixture.name());
    let selector = ListParams::default().fields(&format!("regarding.name={name}"));
    let what = format!("an event on {name} that says {reason}");
    eventually(&what, CONDITION_TIMEOUT, async || {
        let list = events.list(&selector).await?;
        let mut notes = list.items.into_iter().filter_map(|event| event.note);
        Ok(notes.find(|note| note.contains(reason)))
    })
    .await
}

#[tokio::test]
async fn a_binding_is_made_for_those_who_could_make_it_themselves_and_ends() -> Result<()> {
    oz().await?;
    let world = stamping("rego-rights").await?;
    let (leads, interns) = (fleets(&world, "lea").await?, fleets(&world, "ina").await?);
    let bindings: Api<RoleBinding> =
        Api::namespaced(world.fixture.admin.clone(), world.fixture.name());
    let until = Timestamp::now() + SignedDuration::from_secs(20);
    let spec = |role: &str, until: Timestamp| json!({"role": role, "user": "alison", "until": until.to_string()});
    let parameters = PostParams::default();

    leads
        .create(&parameters, &fleet(&world, "lets", &spec("view", until))?)
        .await?;
    eventually("a binding", CONDITION_TIMEOUT, async || {
        Ok(bindings.get_opt("lets").await?)
    })
    .await?;

    // An intern may not bind it; no user may bind a role that is not listed, or is too powerful.
    let later = until + SignedDuration::from_hours(1);
    interns
        .create(&parameters, &fleet(&world, "asks", &spec("view", later))?)
        .await?;
    let note = noted(&world, "asks", "MayNotBind").await?;
    ensure!(note.contains("ina") && note.contains("verb bind"), "{note}");
    leads
        .create(
            &parameters,
            &fleet(&world, "wants", &spec("cluster-admin", later))?,
        )
        .await?;
    noted(&world, "wants", "RoleNotBindable").await?;

    // A user who takes over another user's parent gets no more from it, and a label of a lead vouches for nothing.
    let longer = Patch::Merge(json!({"spec": {"until": later.to_string()}}));
    let patch = PatchParams::default();
    interns.patch("lets", &patch, &longer).await?;
    noted(&world, "lets", "MayNotBind").await?;
    let label = Patch::Merge(json!({"metadata": {"labels": {"seen-by": "lea"}}}));
    let seen = leads.patch("asks", &patch, &label).await?;
    let by = seen.annotations().get(labels::REQUESTED_BY);
    ensure!(by.is_some_and(|by| by == "ina"), "{by:?}");
    eventually(
        "the binding to go at its end",
        CONDITION_TIMEOUT,
        async || Ok(bindings.get_opt("lets").await?.is_none().then_some(())),
    )
    .await?;
    ensure!(Timestamp::now() >= until, "it went too early");
    for name in ["asks", "wants"] {
        ensure!(bindings.get_opt(name).await?.is_none(), "{name} was bound");
    }
    Ok(())
}
