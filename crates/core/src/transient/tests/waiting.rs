//! How far ahead a window opens, and how many of one user wait.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::{BindingStatus, Phase, TransientRoleBinding};
use serde_json::json;

use super::world::*;
use crate::controller::Controller as _;
use crate::transient::{Facts, Kind as _, Policy, Question, WaitingWindow};

type Binding = World<TransientRoleBinding>;

const LEAD: i64 = 7 * 24 * 3600;

/// A binding that opens so many seconds after noon, when it was created, for an hour.
fn opening(seconds: i64) -> Binding {
    namespaced(|object| {
        object["spec"]["validFrom"] = json!(timestamp(seconds));
        object["spec"]["validUntil"] = json!(timestamp(seconds + 3600));
    })
}

/// A window that waits, of a binding that was created at this instant.
fn window(created: Timestamp, uid: &str) -> WaitingWindow {
    let mut world = opening(LEAD);
    world.object.metadata.creation_timestamp = Some(Time(created));
    world.object.metadata.uid = Some(uid.to_owned());
    world.object.stored().unwrap().waiting(created).unwrap()
}

/// So many that were created a minute before.
pub(super) fn older(count: usize) -> Vec<WaitingWindow> {
    let all = (0..count).map(|number| window(timestamp(-60), &format!("older-{number}")));
    all.collect()
}

#[test]
fn window_that_opens_beyond_the_lead_is_denied_when_it_is_created_and_says_when_it_would_not_be() {
    for (opens, phase) in [
        (60, Phase::Pending),
        (LEAD - 1, Phase::Pending),
        (LEAD, Phase::Pending),
        (LEAD + 1, Phase::Denied),
        (10 * 365 * 24 * 3600, Phase::Denied),
    ] {
        let mut world = opening(opens);
        assert_eq!(world.settle(timestamp(1)).phase, phase, "{opens}");
        assert_eq!(world.looks, 0);
        if phase == Phase::Denied {
            assert_eq!(world.condition("Ready"), "False (WindowTooFar)");
            assert_eq!(world.actions(), ["RequestDenied"]);
            let earliest = timestamp(opens - LEAD).to_string();
            let conditions = world.status().conditions;
            let said = &oz_api::conditions::find(&conditions, "Ready")
                .unwrap()
                .message;
            assert!(said.contains(&earliest), "{said}");
            assert!(said.contains("transient.maxBindingLead"), "{said}");
        }
    }
}

#[test]
fn lead_of_window_counts_from_creation() {
    // It was created before the limit was lowered, or before there was one.
    let mut world = opening(LEAD + 1);
    assert_eq!(world.settle(timestamp(LEAD)).phase, Phase::Denied);
    // One that is in effect already stays.
    let mut world = opening(60);
    assert_eq!(world.settle(timestamp(60)).phase, Phase::Active);
    let mut policy = policy(&["view"]);
    policy.longest_lead = SignedDuration::from_secs(1);
    policy.most_waiting = 1;
    world.waiting = older(5);
    world.controller.policy = Arc::new(policy);
    assert_eq!(world.settle(timestamp(61)).phase, Phase::Active);
}

#[test]
fn binding_beyond_the_waiting_ones_of_its_requester_is_denied() {
    for (most, others, phase) in [
        (20, 0, Phase::Pending),
        (20, 19, Phase::Pending),
        (20, 20, Phase::Denied),
        (20, 21, Phase::Denied),
        (1, 0, Phase::Pending),
        (1, 1, Phase::Denied),
        (0, 1000, Phase::Pending),
    ] {
        let mut world = opening(60);
        let mut policy = policy(&["view"]);
        policy.most_waiting = most;
        world.controller.policy = Arc::new(policy);
        world.waiting = older(others);
        let case = format!("{others} of {most}");
        assert_eq!(world.settle(timestamp(1)).phase, phase, "{case}");
        if phase == Phase::Denied {
            assert_eq!(world.condition("Ready"), "False (TooManyWaiting)", "{case}");
            // For good: what has made way since is not asked about.
            world.waiting.clear();
            assert_eq!(world.settle(timestamp(61)).phase, Phase::Denied, "{case}");
            assert_eq!(world.actions(), ["RequestDenied"], "{case}");
        }
    }
}

#[test]
fn simultaneous_windows_wait_up_to_limit_in_any_order() {
    // All within one second, past a webhook that has not seen the others.
    let uids: Vec<String> = (0..30).map(|number| format!("{number:02}")).collect();
    let all: Vec<WaitingWindow> = uids.iter().map(|uid| window(timestamp(0), uid)).collect();
    let mut denied = Vec::new();
    for uid in uids.iter().rev() {
        let mut world = opening(3600);
        world.object.metadata.uid = Some(uid.clone());
        world.waiting.clone_from(&all);
        if world.settle(timestamp(1)).phase == Phase::Denied {
            denied.push(uid.clone());
        }
    }
    denied.reverse();
    assert_eq!(denied, uids[20..]);
}

#[test]
fn binding_that_was_let_wait_is_denied_once_older_ones_of_its_second_are_seen() {
    let mut world = opening(3600);
    assert_eq!(
        world.pass(timestamp(0)).wake,
        Some(timestamp(10)),
        "it is counted again"
    );
    assert_eq!(world.status().phase, Phase::Pending);
    world.waiting = (0..20)
        .map(|n| window(timestamp(0), &format!("0-{n}")))
        .collect();
    assert_eq!(world.settle(timestamp(10)).phase, Phase::Denied);
    // Younger ones do not take its place.
    let mut world = opening(3600);
    world.waiting = (0..50)
        .map(|n| window(timestamp(0), &format!("z-{n}")))
        .collect();
    world.waiting.push(
        world
            .object
            .stored()
            .unwrap()
            .waiting(timestamp(0))
            .unwrap(),
    );
    assert_eq!(world.settle(timestamp(10)).phase, Phase::Pending);
    assert_eq!(world.pass(timestamp(10)).wake, Some(timestamp(3600)));
}

#[test]
fn binding_without_a_window_to_come_counts_as_none_and_is_not_counted_for() {
    let mut at_once = lasting("5m");
    at_once.waiting = older(20);
    assert_eq!(at_once.settle(timestamp(0)).phase, Phase::Active);
    let mut open = opening(-60);
    open.waiting = older(20);
    assert_eq!(open.settle(timestamp(0)).phase, Phase::Active);

    let waits = |world: &Binding, now| world.object.stored().unwrap().waiting(now).is_some();
    let world = opening(60);
    assert!(waits(&world, timestamp(0)));
    assert!(waits(&world, timestamp(60) - NANOSECOND));
    assert!(!waits(&world, timestamp(60)));
    for (phase, expected) in [
        (Phase::Pending, true),
        (Phase::Active, false),
        (Phase::Denied, false),
        (Phase::Failed, false),
        (Phase::Expired, false),
        (Phase::Revoked, false),
    ] {
        let mut world = opening(60);
        world.object.status = Some(BindingStatus {
            phase,
            ..BindingStatus::default()
        });
        assert_eq!(waits(&world, timestamp(0)), expected, "{phase}");
    }
    let mut world = opening(60);
    world.delete();
    assert!(!waits(&world, timestamp(0)));
}

#[test]
fn binding_does_not_wait_before_it_is_known_which_others_do() {
    let world = opening(60);
    let decide = |facts: &Facts| {
        let verdict = world
            .controller
            .decide(timestamp(0), &world.object, facts, &[]);
        verdict.question()
    };
    match decide(&Facts::default()) {
        Some(Question::Waiting(requester)) => assert_eq!(requester.user, "bob"),
        other => panic!("{other:?}"),
    }
    let known = Facts {
        waiting: Some(Vec::new()),
        ..Facts::default()
    };
    assert!(decide(&known).is_none());
}

#[test]
fn refusal_states_permitted_number_of_waiting_bindings() {
    let policy = Policy {
        most_waiting: 2,
        ..policy(&["view"])
    };
    assert!(policy.permits_waiting("bob", 1).is_ok());
    let refused = policy.permits_waiting("bob", 2).unwrap_err();
    assert_eq!(refused.reason, "TooManyWaiting");
    assert_eq!(
        refused.message,
        "2 transient bindings of user bob wait for their windows to open, and 2 are allowed \
         (transient.maxWaitingBindings); delete some that are not needed, or create this one when its window opens"
    );
}
