//! A pod that another user exchanges for the created pod, before the Role exists.

use oz_api::Phase;
use serde_json::json;

use super::world::*;
use crate::access::kind::PodMade;
use crate::access::testing::timestamp;
use crate::controller::{Controller, Outcome, Step};

/// Returns a cluster in which only the pod exists.
fn made() -> World {
    let mut world = World::new();
    world.writes_left = 1;
    world.pass(timestamp(1));
    assert_eq!(world.kinds(), ["Pod"]);
    world.writes_left = usize::MAX;
    world.made = PodMade::from_live(&world.live[0]);
    world
}

fn grants(world: &World) -> bool {
    let role = |step: &Step| matches!(step, Step::Apply(child) if child.resource.kind == "Role");
    world.plan(timestamp(2)).steps().any(role)
}

#[test]
fn only_the_very_pod_that_was_made_gets_a_role() {
    assert!(grants(&made()));
    let mut exchanged = made();
    exchanged.edit("Pod", |pod| pod.metadata.uid = Some("another".to_owned()));
    let mut changed = made();
    changed.edit("Pod", |pod| {
        pod.data["spec"]["containers"][0]["image"] = json!("mallorys:1");
    });
    let mut larger = made();
    larger.edit("Pod", |pod| {
        pod.data["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("64");
    });
    for mut world in [exchanged, changed, larger] {
        assert!(!grants(&world));
        world.settle(timestamp(2));
        assert_eq!(world.actions(), ["DriftDetected", "AccessRevoked"]);
        assert_eq!(world.kinds(), ["Pod"], "on its way out");
        world.remove("Pod");
        assert_eq!(world.settle(timestamp(3)).phase, Phase::Revoked);
        assert_eq!(world.kinds(), [""; 0]);
    }
}

#[test]
fn exchanged_pod_that_vanishes_at_once_is_not_recreated() {
    let mut world = made();
    // The pod was never assigned to a node, so its deletion leaves no containers.
    world.edit("Pod", |pod| {
        pod.metadata.uid = Some("another".to_owned());
        pod.metadata.finalizers = None;
    });
    let decision = world.decide(timestamp(2)).unwrap();
    let plan = &decision.plan;
    world.carry_out(plan);
    world.live.clear();
    let outcome = Outcome {
        failure: plan.obstacle.clone(),
        ..Outcome::default()
    };
    let request = &world.request;
    let status = world
        .controller
        .status(timestamp(2), request, &decision, &outcome);
    assert_eq!(status.phase, Phase::Revoked);
}

#[test]
fn pod_is_recognized_by_spec_after_restart() {
    let restarted = || {
        let mut world = made();
        world.made = None;
        world
    };
    // The additions of the API server and its admission are not changes.
    let mut defaulted = restarted();
    defaulted.edit("Pod", |pod| {
        let spec = &mut pod.data["spec"];
        spec["serviceAccountName"] = json!("default");
        spec["securityContext"] = json!({});
        spec["dnsPolicy"] = json!("ClusterFirst");
        spec["volumes"] = json!([{"name": "kube-api-access-x", "projected": {}}]);
        let container = &mut spec["containers"][0];
        container["terminationMessagePath"] = json!("/dev/termination-log");
        container["volumeMounts"] = json!([{"name": "kube-api-access-x", "mountPath": "/var/run"}]);
    });
    assert!(grants(&defaulted));
    for (field, value) in [
        ("hostPID", json!(true)),
        ("serviceAccountName", json!("admin")),
        (
            "volumes",
            json!([{"name": "host", "hostPath": {"path": "/"}}]),
        ),
        (
            "containers",
            json!([{"name": "app", "image": "mallorys:1"}]),
        ),
    ] {
        let mut world = restarted();
        world.edit("Pod", |pod| pod.data["spec"][field] = value.clone());
        assert!(!grants(&world), "{field}");
    }
}
