//! The published kinds, `example.com/v1`, by the same plan. The first test is the policy's own four:
//! {role, cluster} × {in its window → one child, expired → none}.

use oz_api::{Phase, example_com};
use serde_json::{Value, json};

use super::world::*;
use crate::controller::Step;

fn sample(kind: &str, from: &str, until: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": kind,
        "metadata": {
            "name": "test1",
            "namespace": (kind == "TransientRoleBinding").then_some("default"),
        },
        "validUntil": until, "validFrom": from,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    })
}

/// The children that exist at noon.
fn children<K: InMemory>(kind: &str, from: i64, until: i64) -> Vec<String> {
    let object = sample(
        kind,
        &timestamp(from).to_string(),
        &timestamp(until).to_string(),
    );
    let mut world = World::<K>::from_object(object);
    world.settle(timestamp(0));
    world
        .live
        .iter()
        .map(|live| live.key().to_string())
        .collect()
}

#[test]
fn the_four_published_cases_of_the_policy_hold() {
    use example_com::{ClusterRoleBinding, RoleBinding};
    let role = children::<RoleBinding>;
    let cluster = children::<ClusterRoleBinding>;
    assert_eq!(
        role("TransientRoleBinding", -10, 350),
        ["RoleBinding default/test1"]
    );
    assert!(role("TransientRoleBinding", -350, -10).is_empty());
    let of_cluster = cluster("TransientClusterRoleBinding", -10, 350);
    assert_eq!(of_cluster, ["ClusterRoleBinding test1"]);
    assert!(cluster("TransientClusterRoleBinding", -350, -10).is_empty());
}

#[test]
fn a_child_is_what_the_policy_makes() {
    let object = sample(
        "TransientRoleBinding",
        &timestamp(-10).to_string(),
        &timestamp(350).to_string(),
    );
    let mut world = World::<example_com::RoleBinding>::from_object(object.clone());
    let plan = world.pass(timestamp(0));
    let child = plan.steps().find_map(|step| match step {
        Step::Apply(child) => Some(child),
        _ => None,
    });
    let child = &child.unwrap().object;
    assert_eq!(
        child.types.as_ref().unwrap().api_version,
        "rbac.authorization.k8s.io/v1"
    );
    assert_eq!(child.metadata.name.as_deref(), Some("test1"));
    assert_eq!(child.data["roleRef"], object["roleRef"]);
    assert_eq!(child.data["subjects"], object["subjects"]);
    let owner = &child.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.api_version.as_str(), owner.controller),
        ("example.com/v1", Some(true))
    );
}

#[test]
fn the_published_samples_are_over_or_never_begin() {
    // Both lie in 2022, with an offset; the first has an empty window.
    let mut role = World::<example_com::RoleBinding>::from_object(sample(
        "TransientRoleBinding",
        "2022-01-24T21:08:00+08:00",
        "2022-01-24T21:08:00+08:00",
    ));
    assert_eq!(role.settle(timestamp(0)).phase, Phase::Expired);
    let mut cluster = World::<example_com::ClusterRoleBinding>::from_object(sample(
        "TransientClusterRoleBinding",
        "2022-01-23T21:08:00+08:00",
        "2022-01-25T21:08:00+08:00",
    ));
    assert_eq!(cluster.settle(timestamp(0)).phase, Phase::Expired);
    assert_eq!(cluster.condition("effective"), "False (NeverActive)");
    // Before its empty window it is said at once that it never opens.
    let (from, until) = (timestamp(60).to_string(), timestamp(60).to_string());
    let mut empty = World::<example_com::RoleBinding>::from_object(sample(
        "TransientRoleBinding",
        &from,
        &until,
    ));
    assert_eq!(empty.settle(timestamp(0)).phase, Phase::Failed);
}

#[test]
fn the_log_of_conditions_becomes_one_of_each() {
    let mut object = sample(
        "TransientRoleBinding",
        &timestamp(-10).to_string(),
        &timestamp(350).to_string(),
    );
    let entry = |status: &str, time: i64| json!({"type": "effective", "status": status, "lastTransitionTime": timestamp(time)});
    object["status"] = json!({
        "observedGeneration": 1,
        "conditions": [entry("True", -1), entry("True", -2), entry("False", -3)],
    });
    let mut world = World::<example_com::RoleBinding>::from_object(object);
    world.settle(timestamp(0));
    assert_eq!(world.condition("effective"), "True (Active)");
    assert_eq!(world.status().conditions.len(), 2);
}

#[test]
fn the_two_kinds_of_one_name_do_not_take_each_other_for_theirs() {
    let object = sample(
        "TransientRoleBinding",
        &timestamp(-10).to_string(),
        &timestamp(350).to_string(),
    );
    let mut published = World::<example_com::RoleBinding>::from_object(object);
    published.settle(timestamp(0));
    let own = namespaced(|_| {});
    use crate::controller::Controller;
    assert!(
        own.controller
            .orphaned(timestamp(1), None, &published.live)
            .stages
            .is_empty()
    );
    assert!(
        !published
            .controller
            .orphaned(timestamp(1), None, &published.live)
            .stages
            .is_empty()
    );
}
