//! The status of a request after its end, and the time for which it is kept.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::{Phase, conditions};

use super::world::*;
use crate::access::kind::KeepFinished;
use crate::access::testing::UID;
use crate::controller::{Controller, Failure, Step};
use crate::sessions;

fn granted() -> World {
    let mut world = World::new();
    world.settle(timestamp(1));
    world
}

/// `kubectl wait` reads conditions, and not the phase.
#[test]
fn no_condition_says_of_what_has_ended_that_it_can_be_used() {
    let told = |world: &World| {
        let status = world.status();
        [
            conditions::ACCESS_RESOURCES_CREATED,
            conditions::ACCESS_RESOURCES_READY,
        ]
        .map(|type_| {
            let one = conditions::find(&status.conditions, type_).unwrap();
            format!("{} {}", one.status, one.reason)
        })
    };
    let deleted: Change =
        |world| world.request.metadata.deletion_timestamp = Some(Time(timestamp(10)));
    let changed: Change = |world| world.remove("Role");
    for (event, second, expected) in [
        ((|_| ()) as Change, 300, "False Expired"),
        (deleted, 10, "False Revoked"),
        (changed, 10, "False Revoked"),
    ] {
        let mut world = granted();
        assert_eq!(told(&world), ["True Success", "True Success"]);
        event(&mut world);
        // An end that cannot be recorded is not final yet, but the access cannot be used any more.
        world.records_fail = true;
        world.settle(timestamp(second));
        assert_eq!(told(&world), [expected, expected]);
        world.records_fail = false;
        world.settle(timestamp(second + 1));
        assert!(world.status().phase.is_terminal());
        assert_eq!(told(&world), [expected, expected]);
    }

    let mut slow = granted();
    slow.sessions_fail = Some(Failure::transient(sessions::NOT_ENDED, "no answer"));
    slow.pass(timestamp(300));
    assert_eq!(told(&slow), ["False Expired", "False Ending"]);
    slow.sessions_fail = None;
    slow.settle(timestamp(301));
    assert_eq!(told(&slow), ["False Expired", "False Expired"]);

    // The reason for which the request was never granted stays.
    let mut never = World::new();
    never.workload = Err(Failure::transient("NotFound", "no such StatefulSet"));
    never.settle(timestamp(1));
    let status = never.settle(timestamp(300));
    let created = conditions::find(&status.conditions, conditions::ACCESS_RESOURCES_CREATED);
    assert_eq!(created.unwrap().reason, "Failure");
}

/// A user who applies the manifest again creates a new request; a denied user reads the reason.
#[test]
fn recorded_request_is_deleted_earlier_than_unrecorded_request() {
    let keeps = |mut world: World| {
        world.controller.keep_finished = KeepFinished {
            ended: SignedDuration::from_mins(1),
            others: SignedDuration::from_hours(1),
        };
        world.settle(timestamp(1));
        world
    };
    let mut expired = keeps(World::new());
    expired.settle(timestamp(300));
    assert_eq!(expired.plan(timestamp(301)).wake, Some(timestamp(360)));
    expired.pass(timestamp(360));
    assert!(expired.deleted);

    let mut revoked = keeps(World::new());
    revoked.remove("Role");
    revoked.settle(timestamp(10));
    assert_eq!(revoked.plan(timestamp(11)).wake, Some(timestamp(70)));

    let mut denied = World::new();
    denied.config().allowed_groups = vec!["nobody".into()];
    let mut denied = keeps(denied);
    assert_eq!(denied.status().phase, Phase::Denied);
    assert_eq!(denied.plan(timestamp(2)).wake, Some(timestamp(3601)));

    let mut never = World::new();
    never.template = None;
    let mut never = keeps(never);
    assert_eq!(never.settle(timestamp(300)).phase, Phase::Expired);
    assert_eq!(never.plan(timestamp(301)).wake, Some(timestamp(3900)));
    denied.pass(timestamp(61));
    never.pass(timestamp(361));
    assert!(!denied.deleted && !never.deleted);
}

/// The operator was down at the expiry, and for a long time after: it has made no attempt yet.
#[test]
fn sessions_are_ended_however_late_the_operator_comes_back() {
    for late in [361, 369, 100_000] {
        let mut world = granted();
        let status = world.settle(timestamp(late));
        assert_eq!(status.phase, Phase::Expired, "{late}");
        assert_eq!(world.ended, [UID], "{late}");
        let cut = conditions::find(&status.conditions, conditions::SESSION_TERMINATION);
        let given_up = cut.is_some_and(|cut| cut.reason == conditions::reason::RETRIES_EXHAUSTED);
        assert!(!given_up, "{late}: {cut:?}");
        // The same holds without the request.
        let orphan = granted();
        let plan = orphan
            .controller
            .orphaned(timestamp(late), None, &orphan.live);
        let sessions = |step: &&Step| matches!(step, Step::Effect(_));
        assert_eq!(plan.steps().filter(sessions).count(), 1, "{late}");
    }
}

/// A failed attempt makes oz give up, and the message contains its cause.
#[test]
fn sessions_are_given_up_a_minute_after_the_first_try_and_by_a_try_that_failed() {
    let mut world = granted();
    let deaf = Failure::transient(sessions::NOT_ENDED, "the kubelet says no");
    world.sessions_fail = Some(deaf);
    world.pass(timestamp(1000));
    world.pass(timestamp(1059));
    assert_eq!(world.status().phase, Phase::Active);
    assert_eq!(world.ended, [UID, UID]);

    let mut lost = world.clone();
    let status = lost.settle(timestamp(1060));
    assert_eq!((status.phase, lost.ended.len()), (Phase::Expired, 3));
    let cut = conditions::find(&status.conditions, conditions::SESSION_TERMINATION).unwrap();
    assert_eq!(cut.reason, conditions::reason::RETRIES_EXHAUSTED);
    assert!(
        cut.message.contains("the kubelet says no"),
        "{}",
        cut.message
    );
    let told = ["AccessGranted", "AccessExpired", "SessionTerminated"];
    assert_eq!(lost.actions(), told);

    // After a long pause, the operator makes an attempt before it reports a result.
    world.sessions_fail = None;
    let status = world.settle(timestamp(5000));
    assert_eq!((status.phase, world.ended.len()), (Phase::Expired, 3));
    assert_eq!(world.actions(), told[..2]);
}
