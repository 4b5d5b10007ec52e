//! A grant that requires approvals.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::{AccessLock, AccessRequestApproval, EndReason, Escalation, Phase, conditions};
use oz_trail::Action;
use serde_json::json;

use super::world::*;
use crate::access::approval;
use crate::access::grant::Grant;
use crate::access::kind::Question;
use crate::access::lock::Locks;
use crate::access::testing::judgements;
use crate::controller::Live;
use crate::kinds::{AccessRequest as _, AccessTemplate as _, Kind as _};

/// Returns alice's request, which bob or carol of security must approve within ten minutes.
fn world() -> World {
    let mut world = World::new();
    world.config().approval = Some(approval(&["bob", "carol"], None));
    world
}

/// Returns the digest that an approval or denial must name now.
fn digest(world: &World) -> String {
    let template = world.template.as_ref().unwrap();
    let config = template.config().approval.as_ref().unwrap();
    approval::digest(
        &world.request.stored().unwrap().candidate(),
        &template.spec_digest(),
        config,
    )
}

/// Creates an approval or denial of a user at this second, with a stamp as the webhook makes it.
fn answer(world: &World, user: &str, approval: bool, second: i64) -> AccessRequestApproval {
    let request = world.request.stored().unwrap();
    judgements::answer(&request.candidate(), digest(world), user, approval, second)
}

fn approved(world: &World) -> (String, String, String) {
    let status = world.status();
    let found = conditions::find(&status.conditions, conditions::APPROVED).unwrap();
    (
        found.status.clone(),
        found.reason.clone(),
        found.message.clone(),
    )
}

fn actions(world: &World) -> Vec<Action> {
    world.records.iter().map(|record| record.action).collect()
}

#[test]
fn nothing_is_written_for_a_request_until_it_is_approved_and_its_status_says_who_may() {
    let mut world = world();
    let status = world.settle(timestamp(1));
    assert_eq!((status.phase, world.live.len()), (Phase::Pending, 0));
    assert_eq!(
        approved(&world),
        (
            "False".to_owned(),
            "Waiting".to_owned(),
            "waiting for security: bob, carol may".to_owned()
        )
    );
    let asked = status.approval.unwrap();
    assert_eq!(
        (asked.digest, asked.until),
        (digest(&world), timestamp(600))
    );
    // Waiting costs one write, regardless of its duration.
    let writes = world.writes;
    world.settle(timestamp(500));
    assert_eq!(world.writes, writes);
}

#[test]
fn the_time_of_an_approved_grant_counts_from_the_grant_and_the_record_names_who_approved() {
    let mut world = world();
    world.settle(timestamp(1));
    world.approvals.push(answer(&world, "bob", true, 400));
    let status = world.settle(timestamp(401));
    assert_eq!(status.phase, Phase::Active);
    assert_eq!(status.expires_at, Some(timestamp(401 + 300)));
    assert_eq!(approved(&world).2, "Approved by bob (security)");
    assert_eq!(
        actions(&world),
        [Action::ApprovalRequested, Action::AccessGranted]
    );
    let granted = &world.records[1];
    assert_eq!(granted.details["approvedBy"], "bob (security)");
    let grant = Grant::open_any(&keys(), &world.live[0].object.metadata).unwrap();
    let [one] = grant.approvals.as_slice() else {
        panic!("{:?}", grant.approvals)
    };
    assert_eq!((one.rule.as_str(), one.user.as_str()), ("security", "bob"));
}

#[test]
fn a_grant_without_approvals_counts_from_the_request_and_says_nothing_of_them() {
    let mut world = World::new();
    let status = world.settle(timestamp(40));
    assert_eq!(status.expires_at, Some(timestamp(300)));
    assert!(conditions::find(&status.conditions, conditions::APPROVED).is_none());
    assert_eq!(status.approval, None);
}

#[test]
fn request_is_denied_by_single_denial() {
    let mut world = world();
    world.approvals.push(answer(&world, "bob", true, 5));
    world.approvals.push(answer(&world, "carol", false, 5));
    let status = world.settle(timestamp(6));
    assert_eq!((status.phase, world.live.len()), (Phase::Denied, 0));
    assert_eq!(approved(&world).1, "ApprovalDenied");
    assert_eq!(actions(&world), [Action::RequestDenied]);
}

#[test]
fn a_denial_that_no_watch_has_shown_yet_is_found_before_the_grant() {
    let mut world = world();
    world.approvals.push(answer(&world, "bob", true, 5));
    world
        .unseen_approvals
        .push(answer(&world, "carol", false, 5));
    let mut known = world.facts();
    known.confirmed = None;
    assert!(matches!(
        world.asks(timestamp(6), &known),
        Some(Question::Approvals)
    ));
    assert_eq!(world.settle(timestamp(6)).phase, Phase::Denied);
    assert!(world.live.is_empty());
}

#[test]
fn request_without_approval_expires_at_timeout_and_is_recorded() {
    let mut world = world();
    assert_eq!(
        world.settle(timestamp(600) - NANOSECOND).phase,
        Phase::Pending
    );
    let status = world.settle(timestamp(600));
    assert_eq!(status.phase, Phase::Expired);
    let ending = status.ending.unwrap();
    assert_eq!(ending.reason, EndReason::ApprovalTimedOut);
    assert!(ending.detail.unwrap().contains("security: bob, carol may"));
    assert_eq!(
        actions(&world),
        [Action::ApprovalRequested, Action::ApprovalTimedOut]
    );
}

#[test]
fn pending_request_is_recorded_once_and_again_after_change() {
    let mut world = world();
    world.settle(timestamp(1));
    world.settle(timestamp(2));
    let [asked] = world.records.as_slice() else {
        panic!("{:?}", world.records)
    };
    assert_eq!(asked.action, Action::ApprovalRequested);
    assert_eq!(asked.user.as_ref().unwrap().user, "alice");
    assert_eq!(asked.until, Some(timestamp(600)));
    assert_eq!(asked.details["approvers"], "security: bob, carol may");
    assert_eq!(asked.details["digest"], digest(&world));
    let first = asked.id.clone();

    world.config().max_duration = "3h".into();
    world.settle(timestamp(3));
    world.settle(timestamp(4));
    assert_eq!(actions(&world), [Action::ApprovalRequested; 2]);
    assert_ne!(world.records[1].id, first);
    assert!(!world.records[1].details.contains_key("notify"));

    let config = world.config();
    config.approval.as_mut().unwrap().rules[0].notify = false;
    world.settle(timestamp(5));
    assert_eq!(world.records[2].details["notify"], "false");
}

/// Returns an escalation to dave after five minutes.
fn escalation() -> Escalation {
    Escalation {
        after: "5m".into(),
        groups: Vec::new(),
        users: vec!["dave".into()],
        notify: true,
    }
}

#[test]
fn escalation_is_recorded_once_and_names_the_further_approvers() {
    let mut world = world();
    let config = world.config().approval.as_mut().unwrap();
    config.rules[0].escalation = Some(escalation());
    world.settle(timestamp(1));
    assert_eq!(world.plan(timestamp(2)).wake, Some(timestamp(300)));
    let last = timestamp(300) - NANOSECOND;
    let before = world.settle(last).approval.unwrap();
    assert_eq!(actions(&world), [Action::ApprovalRequested]);
    assert_eq!(approved(&world).2, "waiting for security: bob, carol may");

    let after = world.settle(timestamp(300)).approval.unwrap();
    assert_eq!(
        actions(&world),
        [Action::ApprovalRequested, Action::ApprovalEscalated]
    );
    let record = world.records.last().unwrap();
    assert_eq!(
        record.details["approvers"],
        "security: bob, carol, dave may"
    );
    assert!(!record.details.contains_key("notify"));
    assert_eq!(after.escalated, ["security"]);
    // What was approved does not change.
    assert_eq!(after.digest, before.digest);
    world.settle(timestamp(301));
    assert_eq!(world.records.len(), 2);

    let given = answer(&world, "dave", true, 302);
    world.approvals.push(given);
    assert_eq!(world.settle(timestamp(303)).phase, Phase::Active);
    assert_eq!(approved(&world).2, "Approved by dave (security)");
}

#[test]
fn escalation_before_the_first_pass_is_recorded_too() {
    let mut world = world();
    let config = world.config().approval.as_mut().unwrap();
    config.rules[0].escalation = Some(escalation());
    // The operator was unavailable until then.
    let status = world.settle(timestamp(301));
    assert_eq!(status.approval.unwrap().escalated, ["security"]);
    assert_eq!(
        actions(&world),
        [Action::ApprovalRequested, Action::ApprovalEscalated]
    );
    assert_ne!(world.records[0].id, world.records[1].id);
    world.settle(timestamp(302));
    assert_eq!(world.records.len(), 2);
}

#[test]
fn escalation_of_satisfied_rule_or_without_notification_notifies_no_route() {
    let mut world = world();
    let config = world.config().approval.as_mut().unwrap();
    let further = Escalation {
        after: "5m".into(),
        groups: Vec::new(),
        users: vec!["dave".into()],
        notify: false,
    };
    config.rules[0].escalation = Some(further);
    let mut second = config.rules[0].clone();
    second.name = "sre".into();
    second.users = vec!["erin".into()];
    config.rules.push(second);
    let given = answer(&world, "erin", true, 1);
    world.approvals.push(given);
    world.settle(timestamp(2));
    let status = world.settle(timestamp(300));
    assert_eq!(status.approval.unwrap().escalated, ["security"]);
    let record = world.records.last().unwrap();
    assert_eq!(record.action, Action::ApprovalEscalated);
    assert_eq!(record.details["notify"], "false");
}

/// A name, and a change that sets or removes the obstacle.
type Obstacle = (&'static str, fn(&mut World, bool));

#[test]
fn approvers_are_asked_after_a_pass_that_could_not_ask_them() {
    let obstacles: [Obstacle; 2] = [
        ("lock unreadable", |world, holds| {
            world.locks.unreadable = usize::from(holds);
        }),
        ("records fail", |world, holds| world.records_fail = holds),
    ];
    for (name, obstruct) in obstacles {
        let mut world = world();
        obstruct(&mut world, true);
        let status = world.settle(timestamp(1));
        assert_eq!((status.approval, actions(&world)), (None, vec![]), "{name}");
        obstruct(&mut world, false);
        let status = world.settle(timestamp(2));
        let asked = status.approval.map(|asked| asked.digest);
        assert_eq!(asked, Some(digest(&world)), "{name}");
        assert_eq!(actions(&world), [Action::ApprovalRequested], "{name}");
    }
}

#[test]
fn an_approval_given_in_time_is_good_as_long_as_a_request_waits_otherwise() {
    let mut world = world();
    let ready = std::mem::replace(&mut world.workload, Ok(workload(&[])));
    world.approvals.push(answer(&world, "bob", true, 599));
    assert_eq!(world.settle(timestamp(700)).phase, Phase::Pending);
    // The request is for five minutes.
    let mut late = world.clone();
    assert_eq!(late.settle(timestamp(599 + 300)).phase, Phase::Expired);
    world.workload = ready;
    let status = world.settle(timestamp(700));
    assert_eq!(
        (status.phase, status.expires_at),
        (Phase::Active, Some(timestamp(1000)))
    );
}

#[test]
fn request_is_not_granted_by_old_approvals_after_operator_was_unavailable() {
    let mut world = world();
    world.settle(timestamp(1));
    world.approvals.push(answer(&world, "bob", true, 400));
    // The request is for five minutes, and all its other rules hold.
    let mut in_time = world.clone();
    let last = timestamp(700) - NANOSECOND;
    assert_eq!(in_time.settle(last).phase, Phase::Active);
    for second in [700, 100_000] {
        let mut late = world.clone();
        let status = late.settle(timestamp(second));
        assert_eq!((status.phase, late.live.len()), (Phase::Expired, 0));
        let ending = status.ending.unwrap();
        assert_eq!(ending.reason, EndReason::ApprovalTimedOut);
        let expected = "not granted in time after its last approval (until 2026-01-01T12:11:40Z)";
        assert!(ending.detail.unwrap().starts_with(expected));
        let (status, reason, _) = approved(&late);
        assert_eq!((&*status, &*reason), ("False", "ApprovalTimedOut"));
        assert_eq!(
            actions(&late),
            [Action::ApprovalRequested, Action::ApprovalTimedOut]
        );
    }
}

#[test]
fn approval_is_void_after_change_and_condition_reports_it() {
    let mut world = world();
    world.approvals.push(answer(&world, "bob", true, 5));
    world.config().max_duration = "25h".into();
    assert_eq!(world.settle(timestamp(6)).phase, Phase::Pending);
    let (_, _, message) = approved(&world);
    assert!(
        message.contains("1 given for an earlier content of the request"),
        "{message}"
    );
    world.approvals.push(answer(&world, "carol", true, 7));
    assert_eq!(world.settle(timestamp(8)).phase, Phase::Active);
}

/// A manipulation of an approval of bob.
type Forge = fn(&World, &mut AccessRequestApproval);

#[test]
fn an_approval_that_the_webhook_did_not_seal_for_this_request_counts_for_nothing() {
    let forges: [(&str, Forge); 6] = [
        ("no stamp", |_, object| object.metadata.annotations = None),
        ("another answer's stamp", |world, object| {
            let other = answer(world, "carol", true, 5);
            object.metadata.annotations = other.metadata.annotations;
        }),
        ("another name", |_, object| {
            object.metadata.name = Some("other".into());
        }),
        ("a denial turned into an approval", |world, object| {
            let denial = answer(world, "bob", false, 5);
            object.metadata.annotations = denial.metadata.annotations;
        }),
        ("created long after", |_, object| {
            object.metadata.creation_timestamp = Some(Time(timestamp(60)));
        }),
        ("the request before this one", |_, object| {
            object.spec.access_request_ref.uid = "uid-before".into();
        }),
    ];
    for (what, forge) in forges {
        let mut world = world();
        let mut object = answer(&world, "bob", true, 5);
        forge(&world, &mut object);
        world.approvals.push(object);
        assert_eq!(world.settle(timestamp(6)).phase, Phase::Pending, "{what}");
        assert!(world.live.is_empty(), "{what}");
    }
}

#[test]
fn a_process_that_dies_between_approval_and_grant_leaves_exactly_one_grant() {
    for left in 0..8 {
        let mut world = world();
        world.settle(timestamp(1));
        world.approvals.push(answer(&world, "bob", true, 5));
        world.writes_left = left;
        for _ in 0..3 {
            world.pass(timestamp(6));
        }
        world.writes_left = usize::MAX;
        let status = world.settle(timestamp(9));
        assert_eq!(status.phase, Phase::Active, "{left}");
        let count = |kind: &str| {
            let all = world.live.iter();
            all.filter(|live| live.resource.kind == kind).count()
        };
        assert_eq!((count("Role"), count("RoleBinding")), (1, 1), "{left}");
        let until = |live: &Live| {
            Grant::open_any(&keys(), &live.object.metadata)
                .unwrap()
                .window
                .until
        };
        let until: Vec<_> = world.live.iter().map(until).collect();
        assert!(
            until.iter().all(|one| Some(*one) == status.expires_at),
            "{left}"
        );
    }
}

#[test]
fn a_withdrawn_approval_does_not_count_and_one_after_the_grant_changes_nothing() {
    let mut world = world();
    world.approvals.push(answer(&world, "bob", true, 5));
    let given = world.approvals.pop().unwrap();
    assert_eq!(world.settle(timestamp(6)).phase, Phase::Pending);
    world.approvals.push(given);
    assert_eq!(world.settle(timestamp(7)).phase, Phase::Active);
    world.approvals.clear();
    assert_eq!(world.settle(timestamp(8)).phase, Phase::Active);
}

/// Returns a lock on bob until then.
fn bob_is_locked(until: Option<&str>) -> Locks {
    let lock: AccessLock = serde_json::from_value(json!({
        "metadata": {"name": "incident-7"},
        "spec": {"target": {"user": "bob"}, "reason": "stolen laptop", "until": until},
    }))
    .unwrap();
    Locks {
        all: vec![Arc::new(lock)],
        unreadable: 0,
    }
}

#[test]
fn approval_by_locked_user_counts_again_when_lock_expires() {
    let mut world = world();
    world.approvals.push(answer(&world, "bob", true, 5));
    world.locks = bob_is_locked(Some("2026-01-01T12:01:40Z"));
    assert_eq!(world.settle(timestamp(6)).phase, Phase::Pending);
    assert!(approved(&world).2.contains("by a locked user"));
    assert_eq!(world.plan(timestamp(7)).wake, Some(timestamp(100)));
    assert_eq!(world.settle(timestamp(100)).phase, Phase::Active);
    // A lock without expiry is considered again at its removal, and the request waits until the timeout of the
    // approval.
    let mut endless = self::world();
    endless.approvals.push(answer(&endless, "bob", true, 5));
    endless.locks = bob_is_locked(None);
    assert_eq!(endless.settle(timestamp(6)).phase, Phase::Pending);
    assert_eq!(endless.plan(timestamp(7)).wake, Some(timestamp(600)));
    endless.locks = Locks::default();
    assert_eq!(endless.settle(timestamp(8)).phase, Phase::Active);
}

#[test]
fn lock_affects_approvals_of_its_user() {
    let world = world();
    let concerned = |user: &str| {
        let lock = &bob_is_locked(None).all[0];
        approval::is_concerned_by(&answer(&world, user, true, 5), lock, &keys())
    };
    assert!(concerned("bob") && !concerned("carol"));
    let mut forged = answer(&world, "bob", true, 5);
    forged.metadata.annotations = None;
    assert!(!approval::is_concerned_by(
        &forged,
        &bob_is_locked(None).all[0],
        &keys()
    ));
}
