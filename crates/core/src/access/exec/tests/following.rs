//! A grant with a replaced pod continues in a successor, if its template permits that.

use oz_api::{OnPodReplacement, OnTemplateChange, Phase, conditions};

use super::world::*;
use crate::access::grant::Grant;
use crate::access::kind::PodSeen;
use crate::access::testing::UID;
use crate::controller::{Failure, Step};

/// Returns a grant that follows, of a workload of this kind, and its pod.
fn granted(kind: &str) -> (World, String) {
    let mut world = World::new();
    let config = world.config();
    config.on_pod_replacement = OnPodReplacement::Follow;
    config.access_command = "enter {{ .Metadata.Name }}".into();
    let mut pods = workload(&["db-0", "db-1", "db-2"]);
    pods.kind = kind.into();
    world.workload = Ok(pods);
    world.settle(timestamp(1));
    let pod = world.status().pod_name.unwrap();
    (world, pod)
}

/// Deletes the pod with this name; the pods after that have these names, and new UIDs.
fn replace(world: &mut World, pod: &str, then: &[&str]) {
    let workload = world.workload.as_mut().unwrap();
    workload.pods = then.iter().map(|name| super::world::pod(name)).collect();
    for new in &mut workload.pods {
        let name = new.metadata.name.clone().unwrap();
        new.metadata.uid = Some(format!("new-{name}"));
    }
    world.pod = Some(PodSeen {
        name: pod.to_owned(),
        uid: then.contains(&pod).then(|| format!("new-{pod}")),
    });
}

/// Returns the current decision on the Role.
fn decision(world: &World) -> Grant {
    let role = world.live.iter().find(|live| live.resource.kind == "Role");
    Grant::open(&keys(), &role.unwrap().object.metadata, UID).unwrap()
}

#[test]
fn grant_continues_in_replaced_pod_and_keeps_expiry() {
    let (mut world, pod) = granted("StatefulSet");
    let before = world.status();
    replace(&mut world, &pod, &["db-0", "db-1", "db-2"]);
    let after = world.settle(timestamp(10));
    assert_eq!((after.phase, after.ready), (Phase::Active, true));
    assert_eq!(after.pod_name.as_ref(), Some(&pod));
    assert_eq!(after.pod_uid, Some(format!("new-{pod}")));
    assert_eq!(after.expires_at, before.expires_at);
    assert_eq!(after.granted_at, before.granted_at);
    assert_eq!(decision(&world).pod.uid, format!("new-{pod}"));
    assert_eq!(world.kinds(), ["Role", "RoleBinding"]);
    assert_eq!(world.actions(), ["AccessGranted", "TargetPinned"]);
    let record = world.records.last().unwrap();
    assert_eq!(record.pod.as_ref().unwrap().uid, format!("new-{pod}"));
    assert!(
        record.message.contains("was replaced"),
        "{}",
        record.message
    );
    assert_eq!(world.settle(timestamp(300)).phase, Phase::Expired);
    assert_eq!(world.live, []);
}

#[test]
fn grant_continues_in_other_pod_of_deployment() {
    let (mut world, pod) = granted("Deployment");
    let others: Vec<&str> = ["db-0", "db-1", "db-2"]
        .into_iter()
        .filter(|name| **name != pod)
        .collect();
    replace(&mut world, &pod, &others);
    let after = world.settle(timestamp(10));
    let next = after.pod_name.unwrap();
    assert!(after.ready && others.contains(&next.as_str()), "{next}");
    assert_eq!(after.access_message, Some(format!("enter {next}")));
    let role = world
        .live
        .iter()
        .find(|live| live.resource.kind == "Role")
        .unwrap();
    for rule in role.object.data["rules"].as_array().unwrap() {
        assert_eq!(
            rule["resourceNames"],
            serde_json::json!([next]),
            "that pod alone"
        );
    }
    assert!(world.plan(timestamp(11)).stages.is_empty(), "once");
    // Each change of the pod has its own audit record.
    replace(&mut world, &next, &[&pod]);
    assert_eq!(world.settle(timestamp(20)).pod_name, Some(pod));
    let ids: std::collections::BTreeSet<_> =
        world.records.iter().map(|record| &record.id).collect();
    assert_eq!(ids.len(), 3);
}

#[test]
fn grant_without_successor_is_not_ready_and_expires_in_time() {
    for kind in ["StatefulSet", "Deployment"] {
        let (mut world, pod) = granted(kind);
        replace(&mut world, &pod, &[]);
        let waiting = world.settle(timestamp(10));
        assert_eq!((waiting.phase, waiting.ready), (Phase::Active, false));
        let ready =
            conditions::find(&waiting.conditions, conditions::ACCESS_RESOURCES_READY).unwrap();
        assert_eq!(ready.reason, "PodReplaced");
        assert!(
            ready.message.starts_with(&format!("pod {pod} is gone; ")),
            "{}",
            ready.message
        );
        let plan = world.plan(timestamp(10));
        assert!(is_transient(&plan) && !applies(&plan));
        assert_eq!(plan.wake, Some(timestamp(300)));
        assert_eq!(
            world.settle(timestamp(290)),
            waiting,
            "nothing to write while it waits"
        );
        let mut late = world.clone();
        replace(&mut late, &pod, &[&pod]);
        assert!(late.settle(timestamp(290)).ready);
        assert_eq!(world.settle(timestamp(300)).phase, Phase::Expired);
    }
    // The workload itself cannot be read.
    let (mut world, pod) = granted("Deployment");
    replace(&mut world, &pod, &[]);
    world.workload = Err(Failure::transient("Unreachable", "no answer"));
    assert_eq!(world.settle(timestamp(250)).phase, Phase::Active);
    assert_eq!(world.settle(timestamp(300)).phase, Phase::Expired);
}

#[test]
fn grant_ends_when_workload_is_replaced() {
    let (mut world, pod) = granted("Deployment");
    replace(&mut world, &pod, &["db-1"]);
    world.workload.as_mut().unwrap().uid = "another".into();
    let status = world.settle(timestamp(10));
    assert_eq!(status.phase, Phase::Revoked);
    let valid = conditions::find(&status.conditions, conditions::ACCESS_STILL_VALID).unwrap();
    assert_eq!(valid.reason, "PodReplaced");
}

#[test]
fn end_of_grant_precedes_move_to_successor() {
    let ends: [(Change, Phase); 3] = [
        (|world| world.remove("RoleBinding"), Phase::Revoked),
        (
            |world| world.request.metadata.deletion_timestamp = Some(timestamp(9).into()),
            Phase::Revoked,
        ),
        (
            |world| world.config().max_duration = "7h".into(),
            Phase::Revoked,
        ),
    ];
    for (change, phase) in ends {
        let mut world = World::new();
        let config = world.config();
        config.on_pod_replacement = OnPodReplacement::Follow;
        config.on_template_change = OnTemplateChange::Revoke;
        world.settle(timestamp(1));
        let pod = world.status().pod_name.unwrap();
        replace(&mut world, &pod, &[&pod]);
        change(&mut world);
        assert_eq!(world.settle(timestamp(10)).phase, phase);
        assert!(!world.actions().contains(&"TargetPinned".to_owned()));
    }
}

#[test]
fn grant_does_not_move_without_audit_record() {
    let (mut world, pod) = granted("StatefulSet");
    let before = decision(&world);
    replace(&mut world, &pod, &[&pod]);
    world.records_fail = true;
    let status = world.settle(timestamp(10));
    assert_eq!((decision(&world), status.ready), (before, false));
    world.records_fail = false;
    assert!(world.settle(timestamp(11)).ready);
}

#[test]
fn a_crash_between_any_two_writes_of_a_move_loses_nothing() {
    for kind in ["StatefulSet", "Deployment"] {
        for writes in 0..4 {
            let (mut world, pod) = granted(kind);
            replace(&mut world, &pod, &["db-0", "db-1", "db-2"]);
            if kind == "Deployment" {
                world
                    .workload
                    .as_mut()
                    .unwrap()
                    .pods
                    .retain(|one| one.metadata.name.as_ref() != Some(&pod));
                world.pod.as_mut().unwrap().uid = None;
            }
            world.writes_left = writes;
            world.pass(timestamp(10));
            world.writes_left = usize::MAX;
            let status = world.settle(timestamp(20));
            assert!(status.ready, "{kind} {writes}");
            assert_eq!(status.pod_uid, Some(decision(&world).pod.uid));
            assert!(status.pod_uid.unwrap().starts_with("new-"));
            assert_eq!(world.kinds(), ["Role", "RoleBinding"]);
            for live in &world.live {
                let carried = Grant::open(&keys(), &live.object.metadata, UID).unwrap();
                assert_eq!(carried, decision(&world), "both say the same");
            }
        }
    }
}

#[test]
fn a_move_is_a_record_first_and_the_role_last() {
    let (mut world, pod) = granted("StatefulSet");
    replace(&mut world, &pod, &[&pod]);
    let plan = world.plan(timestamp(10));
    let [first, second, third] = &plan.stages[..] else {
        panic!("{plan:?}");
    };
    assert!(matches!(&first[..], [Step::Record(_)]));
    assert!(matches!(&second[..], [Step::Apply(child)] if child.resource.kind == "RoleBinding"));
    assert!(matches!(&third[..], [Step::Apply(child)] if child.resource.kind == "Role"));
    assert_eq!(plan.wake, Some(timestamp(300)));
}
