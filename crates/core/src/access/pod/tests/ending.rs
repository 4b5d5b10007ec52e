//! The end of a grant: it is on time in spite of other failures, and it is final only once it was observed.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::{OnTemplateChange, Phase, conditions};
use serde_json::json;

use super::world::*;
use crate::access::kind::Question;
use crate::access::lock::Locks;
use crate::controller::{Answers, Controller, Outcome, Plan, Step};
use crate::sessions::Sessions;

fn deleted(plan: &Plan) -> Vec<&str> {
    let kind = |step: &'_ Step| match step {
        Step::Delete(gone) => Some(gone.resource.kind.clone()),
        _ => None,
    };
    let kinds: Vec<String> = plan.steps().filter_map(kind).collect();
    ["RoleBinding", "Pod", "NetworkPolicy", "Role"]
        .into_iter()
        .filter(|known| kinds.iter().any(|kind| kind == known))
        .collect()
}

#[test]
fn access_and_pod_end_at_the_agreed_instant_and_not_a_nanosecond_before() {
    let world = World::ready();
    assert!(world.plan(timestamp(300) - NANOSECOND).stages.is_empty());
    for late in [
        timestamp(300),
        timestamp(300) + NANOSECOND,
        timestamp(100_000),
    ] {
        let plan = world.plan(late);
        assert_eq!(plan.stages[0].len(), 2);
        assert_eq!(deleted(&plan), ["RoleBinding", "Pod"]);
    }
}

#[test]
fn a_lock_ends_access_and_pod_also_before_that_is_ready() {
    let lock = serde_json::from_value(json!({
        "metadata": {"name": "incident-7"},
        "spec": {"target": {"user": "alice"}, "reason": "stolen laptop"},
    }));
    let locks = Locks {
        all: vec![Arc::new(lock.unwrap())],
        unreadable: 0,
    };
    let mut starting = World::new();
    starting.pass(timestamp(1));
    for mut world in [World::ready(), starting] {
        assert!(world.kinds().contains(&"Pod"));
        world.locks = locks.clone();
        world.settle(timestamp(2));
        world.remove("Pod");
        assert_eq!(world.settle(timestamp(3)).phase, Phase::Revoked);
        assert!(world.live.is_empty());
        assert_eq!(world.condition(conditions::ACCESS_STILL_VALID).1, "Locked");
    }
}

#[test]
fn a_request_is_over_only_when_its_containers_were_seen_to_have_ended() {
    let mut world = World::ready();
    let status = world.settle(timestamp(300));
    assert_eq!((status.phase, status.ready), (Phase::Active, false));
    assert_eq!(world.kinds(), ["Role", "Pod"]);
    assert_eq!(world.condition(conditions::ACCESS_STILL_VALID).1, "Timeout");
    assert_eq!(
        world.condition(conditions::ACCESS_RESOURCES_READY).1,
        "Ending"
    );
    assert_eq!(world.actions(), ["AccessGranted", "AccessExpired"]);
    // The containers still run: the pod is checked again later, and is not changed.
    let plan = world.pass(timestamp(301));
    let looks = |step: &Step| matches!(step, Step::Look(_));
    assert!(plan.steps().all(looks) && plan.wake > Some(timestamp(301)));

    world.remove("Pod");
    assert_eq!(world.settle(timestamp(302)).phase, Phase::Expired);
    assert!(world.live.is_empty());
    assert_eq!(world.actions(), ["AccessGranted", "AccessExpired"]);
    for type_ in [
        conditions::ACCESS_RESOURCES_CREATED,
        conditions::ACCESS_RESOURCES_READY,
    ] {
        let (holds, reason, _) = world.condition(type_);
        assert_eq!((holds.as_str(), reason.as_str()), ("False", "Expired"));
    }
}

#[test]
fn containers_that_are_reported_terminated_are_enough() {
    let mut world = World::ready();
    world.settle(timestamp(300));
    world.becomes(json!({
        "phase": "Failed",
        "containerStatuses": [{
            "name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 137}},
        }],
    }));
    assert_eq!(world.settle(timestamp(302)).phase, Phase::Expired);
}

#[test]
fn a_record_that_cannot_be_written_keeps_neither_access_nor_pod() {
    let mut world = World::ready();
    world.records_fail = true;
    world.settle(timestamp(300));
    assert_eq!(world.kinds(), ["Role", "Pod"]);
    world.remove("Pod");
    assert_eq!(
        world.settle(timestamp(301)).phase,
        Phase::Active,
        "not on record"
    );
    world.records_fail = false;
    assert_eq!(world.settle(timestamp(302)).phase, Phase::Expired);
    assert_eq!(world.actions(), ["AccessGranted", "AccessExpired"]);
}

#[test]
fn pod_deletion_with_long_grace_period_is_shortened() {
    let mut world = World::ready();
    world.edit("Pod", |pod| {
        pod.metadata.deletion_timestamp = Some(Time(timestamp(3000)));
        pod.metadata.deletion_grace_period_seconds = Some(2990);
    });
    let plan = world.plan(timestamp(10));
    assert_eq!(deleted(&plan), ["RoleBinding", "Pod"]);
}

#[test]
fn meddling_revokes_and_the_reason_stays_until_the_pod_has_ended() {
    type Change = fn(&mut World);
    let cases: [(&str, Change); 7] = [
        ("Pod mine-0a1b2c3d was deleted", |world| world.remove("Pod")),
        ("replaced by another", |world| {
            world.edit("Pod", |pod| pod.metadata.uid = Some("another".into()));
        }),
        ("images or limits", |world| {
            world.edit("Pod", |pod| {
                pod.data["spec"]["containers"][0]["image"] = json!("evil:1")
            });
        }),
        ("images or limits", |world| {
            let limits = json!({"cpu": "64"});
            world.edit("Pod", |pod| {
                pod.data["spec"]["containers"][0]["resources"]["limits"] = limits;
            });
        }),
        ("the rules of Role", |world| {
            world.edit("Role", |role| role.data["rules"][0]["verbs"] = json!(["*"]));
        }),
        ("RoleBinding mine-0a1b2c3d was deleted", |world| {
            world.remove("RoleBinding")
        }),
        ("was deleted", |world| world.remove("Role")),
    ];
    for (what, change) in cases {
        let mut world = World::ready();
        change(&mut world);
        world.settle(timestamp(10));
        assert!(
            world
                .kinds()
                .iter()
                .all(|kind| *kind == "Role" || *kind == "Pod"),
            "{what}"
        );
        if world.kinds().contains(&"Pod") {
            world.remove("Pod");
        }
        let status = world.settle(timestamp(11));
        assert_eq!(
            (status.phase, world.live.len()),
            (Phase::Revoked, 0),
            "{what}"
        );
        let message = world.condition(conditions::ACCESS_STILL_VALID).2;
        assert!(message.contains(what), "{what}: {message}");
        assert!(world.actions().contains(&"DriftDetected".to_owned()));
    }
}

/// The watch may show the deletions of the garbage collector before the deletion of the request.
#[test]
fn garbage_collection_after_request_deletion_is_not_drift() {
    for kind in ["Pod", "RoleBinding"] {
        let mut world = World::ready();
        world.remove(kind);
        let mut facts = world.facts();
        facts.is_deleted = None;
        let question = world.asks(timestamp(10), &facts);
        assert!(matches!(question, Some(Question::Deletion)), "{kind}");
        facts.is_deleted = Some(true);
        let (controller, request, live) = (&world.controller, &world.request, &world.live);
        let decide = |now| {
            let verdict = controller.decide(now, request, &facts, live);
            verdict.decided().unwrap()
        };
        let decision = decide(timestamp(10));
        let plan = &decision.plan;
        assert!(plan.stages.is_empty(), "{kind}: {:?}", plan.stages);
        let outcome = Outcome {
            live: live.clone(),
            failure: plan.obstacle.clone(),
            answers: Answers::default(),
        };
        let status = controller.status(timestamp(10), request, &decision, &outcome);
        assert_eq!(status, world.status(), "{kind}");
        // The expiry applies regardless of the state of the request.
        assert!(!deleted(&decide(timestamp(300)).plan).is_empty(), "{kind}");
        facts.is_deleted = None;
        assert!(world.asks(timestamp(300), &facts).is_none(), "{kind}");
    }
    let ready = World::ready();
    let mut facts = ready.facts();
    facts.is_deleted = None;
    assert!(ready.asks(timestamp(10), &facts).is_none());
}

#[test]
fn a_changed_network_policy_revokes() {
    let network = template(json!({"network": {"egress": "None"}}));
    for remove in [true, false] {
        let mut world = World::by(network.clone());
        world.settle(timestamp(1));
        if remove {
            world.remove("NetworkPolicy");
        } else {
            world.edit("NetworkPolicy", |policy| {
                policy.data["spec"]["egress"] = json!([{}]);
            });
        }
        world.settle(timestamp(2));
        world.remove("Pod");
        assert_eq!(world.settle(timestamp(3)).phase, Phase::Revoked);
        assert!(world.live.is_empty());
    }
}

#[test]
fn labels_and_annotations_of_others_are_not_meddling() {
    let mut world = World::ready();
    world.edit("Pod", |pod| {
        pod.metadata
            .labels
            .as_mut()
            .unwrap()
            .insert("team".into(), "blue".into());
        pod.data["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    });
    assert!(world.plan(timestamp(10)).stages.is_empty());
}

#[test]
fn deleting_a_request_revokes() {
    let mut world = World::ready();
    world.request.metadata.deletion_timestamp = Some(Time(timestamp(10)));
    world.settle(timestamp(10));
    world.remove("Pod");
    assert_eq!(world.settle(timestamp(11)).phase, Phase::Revoked);
    assert_eq!(world.condition(conditions::ACCESS_STILL_VALID).1, "Deleted");
    assert_eq!(world.actions(), ["AccessGranted", "AccessRevoked"]);
}

#[test]
fn pod_and_role_of_deleted_request_are_removed_and_recorded() {
    let mut world = World::ready();
    let plan = world.controller.orphaned(timestamp(10), None, &world.live);
    assert_eq!(deleted(&plan), ["RoleBinding", "Pod", "Role"]);
    assert!(matches!(
        &plan.stages[2][..],
        [Step::Record(record), Step::Effect(effect)]
            if record.action.to_string() == "AccessRevoked"
                && Sessions::try_from(effect).unwrap().with_pod
    ));
    world.carry_out(&plan);
    let plan = world.controller.orphaned(timestamp(10), None, &world.live);
    assert!(plan.steps().all(|step| matches!(step, Step::Look(_))));
}

#[test]
fn a_changed_template_ends_its_grants_only_if_it_said_so() {
    for (rule, phase) in [
        (OnTemplateChange::Keep, Phase::Starting),
        (OnTemplateChange::Revoke, Phase::Revoked),
    ] {
        let mut world = World::new();
        let set = |world: &mut World, change: &str| {
            let config = &mut world.template.as_mut().unwrap().spec.access_config;
            config.on_template_change = rule;
            config.max_duration = change.into();
        };
        set(&mut world, "24h");
        world.settle(timestamp(1));
        set(&mut world, "2h");
        world.settle(timestamp(2));
        if phase == Phase::Revoked {
            world.remove("Pod");
            world.settle(timestamp(3));
            assert_eq!(
                world.condition(conditions::ACCESS_STILL_VALID).1,
                "TemplateChanged"
            );
        }
        assert_eq!(world.status().phase, phase, "{rule:?}");
    }
}

#[test]
fn the_deadline_of_a_pod_that_starts_late_is_lowered_once() {
    for (started, lowered) in [
        (1, None),
        (3, None),
        (4, Some(293)),
        (100, Some(197)),
        (299, Some(1)),
    ] {
        let mut world = World::new();
        world.settle(timestamp(1));
        world.controller.ready_timeout = jiff::SignedDuration::from_hours(1);
        world.start(timestamp(started));
        world.settle(timestamp(started));
        let deadline = world.pod().data["spec"]["activeDeadlineSeconds"].as_i64();
        assert_eq!(
            deadline,
            Some(lowered.unwrap_or(296)),
            "started at {started}"
        );
        assert!(world.plan(timestamp(started)).stages.is_empty());
    }
}
