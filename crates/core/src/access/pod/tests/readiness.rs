//! The readiness of a pod: the messages for users until then, and the deadline.

use oz_api::Phase;
use oz_api::conditions::{self, ACCESS_RESOURCES_READY};
use serde_json::{Value, json};

use super::world::*;
use crate::access::pod_state;
use crate::validate::MAX_REQUEST_NAME;

fn container(state: Value) -> Value {
    json!([{
        "name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    }])
}

#[test]
fn the_reason_that_a_person_needs_is_in_the_condition() {
    let waiting =
        |reason: &str| container(json!({"waiting": {"reason": reason, "message": "why"}}));
    for (status, told) in [
        (json!({"phase": "Pending"}), "the pod is starting"),
        (
            json!({"phase": "Pending", "containerStatuses": waiting("ContainerCreating")}),
            "the pod is starting",
        ),
        (
            json!({"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/1 nodes are available",
            }]}),
            "Unschedulable: 0/1 nodes are available",
        ),
        (
            json!({"phase": "Pending", "containerStatuses": waiting("ImagePullBackOff")}),
            "container app: ImagePullBackOff: why",
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": waiting("CrashLoopBackOff")}),
            "init container app: CrashLoopBackOff: why",
        ),
        (
            json!({
                "phase": "Running",
                "containerStatuses": container(json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})),
            }),
            "container app: OOMKilled (exit code 137)",
        ),
    ] {
        let mut world = World::new();
        world.settle(timestamp(1));
        world.becomes(status);
        let status = world.settle(timestamp(2));
        assert_eq!((status.phase, status.ready), (Phase::Starting, false));
        let (status, reason, message) = world.condition(ACCESS_RESOURCES_READY);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "NotYetReady"));
        assert_eq!(message, format!("resources not yet available: {told}"));
    }
}

#[test]
fn a_pod_that_is_not_ready_in_time_fails_and_is_cleaned_up() {
    let mut world = World::new();
    world.settle(timestamp(1));
    assert_eq!(world.plan(timestamp(2)).wake, Some(timestamp(61)));
    assert!(world.plan(timestamp(61) - NANOSECOND).stages.is_empty());
    world.settle(timestamp(61));
    assert_eq!(world.kinds(), ["Role", "Pod"]);
    world.remove("Pod");
    let status = world.settle(timestamp(62));
    assert_eq!((status.phase, status.ready), (Phase::Failed, false));
    assert!(world.live.is_empty());
    let (_, reason, message) = world.condition(conditions::ACCESS_STILL_VALID);
    assert_eq!(reason, "PodNotReady");
    assert_eq!(
        message,
        format!("Pod {NAME} was not ready within 1m0s: the pod is starting")
    );
    assert_eq!(world.actions(), ["AccessGranted", "AccessRevoked"]);
}

#[test]
fn a_pod_that_was_ready_once_is_kept_until_its_end() {
    let mut world = World::ready();
    world.becomes(
        json!({"phase": "Running", "containerStatuses": container(json!({"running": {}}))}),
    );
    let status = world.settle(timestamp(100));
    assert_eq!((status.phase, status.ready), (Phase::Active, false));
    assert_eq!(world.condition(ACCESS_RESOURCES_READY).1, "NoLongerReady");
    world.start(timestamp(1));
    assert!(world.settle(timestamp(101)).ready);
}

#[test]
fn a_pod_that_ended_is_reported() {
    let over = json!({
        "phase": "Failed",
        "containerStatuses": container(json!({"terminated": {"exitCode": 1}})),
    });
    let mut used = World::ready();
    used.becomes(over.clone());
    assert!(!used.settle(timestamp(100)).ready);
    let told = used.condition(ACCESS_RESOURCES_READY).2;
    assert_eq!(
        told,
        "the pod has ended: Failed: container app: Error (exit code 1)"
    );
    assert_eq!(used.settle(timestamp(300)).phase, Phase::Expired);

    let mut never = World::new();
    never.settle(timestamp(1));
    never.becomes(over);
    assert_eq!(
        never.settle(timestamp(2)).phase,
        Phase::Failed,
        "it cannot get ready any more"
    );
}

#[test]
fn a_pod_counts_as_ended_only_if_nothing_of_it_can_run() {
    let pod = |deleted: bool, node: Option<&str>, status: Value| {
        let mut pod = json!({
            "metadata": {"name": "x"},
            "spec": {"nodeName": node, "containers": [{"name": "app"}]},
            "status": status,
        });
        if deleted {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:00Z");
        }
        pod_state::has_ended(&serde_json::from_value(pod).unwrap())
    };
    let running = container(json!({"running": {}}));
    let over = container(json!({"terminated": {"exitCode": 0}}));
    for (deleted, node, status, ended) in [
        (false, None, json!({"phase": "Pending"}), false),
        (true, None, json!({"phase": "Pending"}), true),
        (true, Some("n"), json!({"phase": "Pending"}), false),
        (
            true,
            Some("n"),
            json!({"phase": "Running", "containerStatuses": running}),
            false,
        ),
        (
            true,
            Some("n"),
            json!({"phase": "Running", "containerStatuses": over}),
            true,
        ),
        (
            true,
            Some("n"),
            json!({"phase": "Failed", "containerStatuses": over}),
            true,
        ),
        // The node is lost: the phase is Failed, but no component observed the end of the container.
        (
            true,
            Some("n"),
            json!({"phase": "Failed", "containerStatuses": running}),
            false,
        ),
    ] {
        assert_eq!(
            pod(deleted, node, status.clone()),
            ended,
            "{deleted} {node:?} {status}"
        );
    }
}

/// The kubelet cannot create the directory for the logs of a pod whose namespace and name are longer.
#[test]
fn pod_of_request_with_long_name_becomes_ready_and_is_deleted_at_expiry() {
    let mut world = World::new();
    world.request.metadata.name = Some("m".repeat(MAX_REQUEST_NAME));
    world.stamp("alice", &["devs"]);
    world.settle(timestamp(1));
    world.start(timestamp(1));
    let status = world.settle(timestamp(2));
    assert_eq!((status.phase, status.ready), (Phase::Active, true));
    let name = world.pod().metadata.name.clone().unwrap();
    assert_eq!("shop".len() + name.len(), 217);
    assert_eq!(status.pod_name, Some(name));
    world.settle(timestamp(300));
    world.remove("Pod");
    assert_eq!(world.settle(timestamp(301)).phase, Phase::Expired);
    assert!(world.live.is_empty());
}
