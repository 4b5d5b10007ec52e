//! Requests without a grant: denied, or waiting.

use oz_api::{ExecAccessRequestSpec, Phase, conditions};

use super::world::*;
use crate::controller::{Failure, FailureClass, Step};

#[test]
fn unverified_or_unlisted_requester_is_denied_permanently() {
    let cases: [(&str, Change); 9] = [
        ("NotStamped", |world| {
            world.request.metadata.annotations = None
        }),
        ("StampForged", |world| {
            let annotations = world.request.metadata.annotations.as_mut().unwrap();
            let stamp = annotations.get_mut(oz_api::labels::REQUESTER).unwrap();
            *stamp = stamp.replace("alice", "admin");
        }),
        ("StampOfAnotherRequest", |world| {
            world.request.metadata.name = Some("other".into())
        }),
        ("StampOfAnotherRequest", |world| {
            world.request.spec.target_pod = Some("db-2".into())
        }),
        ("StampTimeMismatch", |world| {
            world
                .request
                .metadata
                .creation_timestamp
                .as_mut()
                .unwrap()
                .0 = timestamp(3600);
        }),
        ("StampReplayed", |world| {
            world.same_stamp = Some("first".into())
        }),
        ("NotAllowed", |world| world.stamp("mallory", &["interns"])),
        ("ServiceAccountsNotAllowed", |world| {
            world.stamp("system:serviceaccount:ci:bot", &["devs"]);
        }),
        ("ReasonRequired", |world| {
            world.config().require_reason = true;
        }),
    ];
    for (reason, change) in cases {
        let mut world = World::new();
        change(&mut world);
        let now = timestamp(1).max(world.request.metadata.creation_timestamp.clone().unwrap().0);
        assert!(!applies(&world.plan(now)), "{reason}");
        let status = world.settle(now).clone();
        assert_eq!(
            (status.phase, status.ready),
            (Phase::Denied, false),
            "{reason}"
        );
        let verified =
            conditions::find(&status.conditions, conditions::REQUESTER_VERIFIED).unwrap();
        assert_eq!(
            (verified.status.as_str(), verified.reason.as_str()),
            ("False", reason)
        );
        assert_eq!(world.actions(), ["RequestDenied"], "{reason}");
        assert_eq!(world.records[0].reason, reason);
        assert!(world.live.is_empty());
    }
}

#[test]
fn a_denial_is_not_final_before_it_is_on_record() {
    let mut world = World::new();
    world.stamp("mallory", &["interns"]);
    world.records_fail = true;
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Pending);
    world.records_fail = false;
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Denied);
}

#[test]
fn a_duration_that_means_nothing_fails_the_request_in_the_words_that_scripts_know() {
    for duration in ["soon", "1d", "-5m"] {
        let mut world = World::asking(ExecAccessRequestSpec {
            template_name: "shell".into(),
            duration: Some(duration.into()),
            ..ExecAccessRequestSpec::default()
        });
        let status = world.settle(timestamp(1));
        assert_eq!(status.phase, Phase::Failed, "{duration}");
        let valid =
            conditions::find(&status.conditions, conditions::ACCESS_DURATIONS_VALID).unwrap();
        assert_eq!(valid.reason, "BadRequest");
        let prefix = "request error: \"access request duration invalid\": ";
        assert!(valid.message.starts_with(prefix), "{}", valid.message);
    }
}

#[test]
fn request_waits_for_condition_that_may_recover() {
    let cases: [(&str, &str, FailureClass, Change); 5] = [
        (
            conditions::TARGET_TEMPLATE_EXISTS,
            "NotFound",
            FailureClass::Invalid,
            |world| {
                world.template = None;
            },
        ),
        (
            conditions::ACCESS_DURATIONS_VALID,
            "BadRequest",
            FailureClass::Invalid,
            |world| {
                world.config().max_duration = "1d".into();
            },
        ),
        (
            conditions::ACCESS_RESOURCES_CREATED,
            "Failure",
            FailureClass::Transient,
            |world| {
                world.workload = Ok(workload(&[]));
            },
        ),
        (
            conditions::ACCESS_RESOURCES_CREATED,
            "Failure",
            FailureClass::Transient,
            |world| {
                world.workload = Err(Failure::transient("TargetNotFound", "no such workload"));
            },
        ),
        (
            conditions::ACCESS_RESOURCES_CREATED,
            "Failure",
            FailureClass::Transient,
            |world| {
                world.request.spec.target_pod = Some("db-9".into());
                world.stamp("alice", &["devs"]);
            },
        ),
    ];
    for (type_, reason, class, change) in cases {
        let mut world = World::new();
        change(&mut world);
        let plan = world.plan(timestamp(1));
        assert!(plan.stages.is_empty());
        assert_eq!(plan.obstacle.as_ref().unwrap().class, class, "{type_}");
        assert_eq!(is_transient(&plan), class == FailureClass::Transient);
        let status = world.settle(timestamp(1));
        assert_eq!((status.phase, status.ready), (Phase::Pending, false));
        let condition = conditions::find(&status.conditions, type_).unwrap();
        assert_eq!(
            (condition.status.as_str(), condition.reason.as_str()),
            ("False", reason)
        );

        // The missing object appears, and the request is granted.
        let healthy = World::new();
        world.template = healthy.template;
        world.workload = Ok(workload(&["db-0", "db-9"]));
        let status = world.settle(timestamp(2));
        assert_eq!(
            (status.phase, status.ready),
            (Phase::Active, true),
            "{type_}"
        );
    }
}

#[test]
fn a_command_that_does_not_render_grants_nothing() {
    let mut world = World::new();
    world.config().access_command = "{{ .Nope".into();
    assert!(!applies(&world.plan(timestamp(1))));
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Pending);
}

#[test]
fn a_pending_request_that_is_deleted_leaves_nothing() {
    let mut world = World::new();
    world.template = None;
    world.settle(timestamp(1));
    let plan = world.plan(timestamp(2));
    assert!(plan.steps().all(|step| !matches!(step, Step::Apply(_))));
}
