//! Transient bindings that others have to approve, as policies said when they were created.

use std::sync::Arc;

use oz_api::{
    AccessLock, AccessRequestApproval, EndReason, Escalation, Phase, TicketConfig,
    TransientClusterRoleBinding, TransientRoleBinding, conditions, example_com, labels,
};
use serde_json::json;

use super::world::*;
use crate::access::lock::Locks;
use crate::access::policy::{self, Applied, Extra, Judgement, Longest, Refused, Rule, TicketRule};
use crate::access::testing::judgements;

const OWN: &str = "oz-system";

/// Each of these has to agree, under a rule of their own, within half an hour.
fn judgement(users: &[&str]) -> Judgement {
    let rule = |user: &&str| Rule {
        name: format!("night/{user}"),
        groups: Vec::new(),
        users: vec![(*user).to_owned()],
        approvals: 1,
        silent: false,
        unless: Vec::new(),
        escalation: None,
    };
    Judgement {
        asked: 1,
        policies: vec![Applied {
            name: "night".into(),
            digest: "sha256:1".into(),
        }],
        approval: (!users.is_empty()).then(|| Extra {
            rules: users.iter().map(rule).collect(),
            timeout: "30m".into(),
            require_reason: false,
        }),
        ..Judgement::default()
    }
}

fn judged<K: InMemory>(mut world: World<K>, judgement: Judgement) -> World<K> {
    world.judgement = Some(judgement);
    world.stamp();
    world
}

/// Bob's binding for ten minutes, which carol has to approve, or carol and dave.
fn waiting(users: &[&str]) -> World<TransientRoleBinding> {
    judged(lasting("10m"), judgement(users))
}

/// An answer of a user's after so many seconds, stamped as the webhook would.
fn answer<K: InMemory>(
    world: &World<K>,
    user: &str,
    approval: bool,
    second: i64,
) -> AccessRequestApproval {
    let view = world.object.stored().unwrap();
    let judgement = view.stamp(&keys()).unwrap().judgement;
    let config = policy::rules(judgement.as_ref()).unwrap();
    let requester = view.requester(&keys()).unwrap();
    let digest = view.asked(OWN, &requester, &config).unwrap().digest;
    judgements::answer(&view.candidate(OWN), digest, user, approval, second)
}

fn approved<K: InMemory>(world: &World<K>) -> String {
    let status = world.status();
    let found = conditions::find(&status.conditions, conditions::APPROVED);
    found.map_or_else(String::new, |found| {
        format!("{} {}: {}", found.status, found.reason, found.message)
    })
}

/// A name, and a change that sets or removes the obstacle.
type Obstacle = (&'static str, fn(&mut World<TransientRoleBinding>, bool));

#[test]
fn approvers_are_asked_after_a_pass_that_could_not_ask_them() {
    let obstacles: [Obstacle; 2] = [
        ("lock unreadable", |world, holds| {
            world.locks.unreadable = usize::from(holds);
        }),
        ("records fail", |world, holds| world.records_fail = holds),
    ];
    for (name, obstruct) in obstacles {
        let mut world = waiting(&["carol"]);
        obstruct(&mut world, true);
        let status = world.settle(timestamp(1));
        assert_eq!(status.approval, None, "{name}");
        assert!(world.actions().is_empty(), "{name}");
        obstruct(&mut world, false);
        assert!(world.settle(timestamp(2)).approval.is_some(), "{name}");
        assert_eq!(world.actions(), ["ApprovalRequested"], "{name}");
    }
}

#[test]
fn binding_waits_without_write_and_its_duration_starts_at_approval() {
    let mut world = waiting(&["carol"]);
    let status = world.settle(timestamp(1));
    assert_eq!((status.phase, world.live.len()), (Phase::Pending, 0));
    assert_eq!(
        approved(&world),
        "False Waiting: waiting for night/carol: carol may"
    );
    assert_eq!(status.approval.unwrap().until, timestamp(1800));
    let (writes, looks) = (world.writes, world.looks);
    world.settle(timestamp(300));
    assert_eq!((world.writes, world.looks), (writes, looks));
    world.approvals.push(answer(&world, "carol", true, 400));
    let status = world.settle(timestamp(401));
    assert_eq!(status.phase, Phase::Active);
    assert_eq!(status.expires_at, Some(timestamp(401 + 600)));
    assert_eq!(
        approved(&world),
        "True Success: Approved by carol (night/carol)"
    );
    assert_eq!(world.actions(), ["ApprovalRequested", "AccessGranted"]);
    assert_eq!(
        world.records[0].details["approvers"],
        "night/carol: carol may"
    );
    let granted = &world.records[1];
    assert_eq!(granted.details["approvedBy"], "carol (night/carol)");
    assert_eq!(granted.details["policies"], "night sha256:1");
    // What was decided stands, whatever becomes of the answers.
    world.approvals.clear();
    assert_eq!(world.settle(timestamp(500)).phase, Phase::Active);
    assert_eq!(world.settle(timestamp(1001)).phase, Phase::Expired);
}

#[test]
fn escalation_of_binding_is_recorded_once_and_its_approver_counts() {
    let mut judgement = judgement(&["carol"]);
    judgement.approval.as_mut().unwrap().rules[0].escalation = Some(Escalation {
        after: "10m".into(),
        groups: Vec::new(),
        users: vec!["dave".into()],
        notify: true,
    });
    let mut world = judged(lasting("10m"), judgement);
    world.settle(timestamp(1));
    let before = world.settle(timestamp(599)).approval.unwrap();
    assert_eq!(before.escalated, [""; 0]);
    let after = world.settle(timestamp(600)).approval.unwrap();
    assert_eq!(after.escalated, ["night/carol"]);
    assert_eq!(after.digest, before.digest);
    world.settle(timestamp(601));
    assert_eq!(world.actions(), ["ApprovalRequested", "ApprovalEscalated"]);
    world.approvals.push(answer(&world, "dave", true, 602));
    assert_eq!(world.settle(timestamp(603)).phase, Phase::Active);
}

#[test]
fn approvals_by_requester_or_unlisted_user_open_nothing() {
    let mut world = waiting(&["bob", "carol"]);
    world.settle(timestamp(1));
    // Bob asked for it.
    world.approvals.push(answer(&world, "bob", true, 10));
    // Nobody asked erin.
    world.approvals.push(answer(&world, "erin", true, 10));
    world.approvals.push(answer(&world, "carol", true, 10));
    assert_eq!(world.settle(timestamp(20)).phase, Phase::Pending);
    assert!(approved(&world).contains("night/bob: no other approver is left"));
    assert!(world.live.is_empty());
}

#[test]
fn approval_by_bound_user_does_not_count_and_by_member_of_bound_group_does() {
    for (subject, expected) in [
        (json!({"kind": "User", "name": "carol"}), Phase::Pending),
        (json!({"kind": "User", "name": "alice"}), Phase::Active),
        (json!({"kind": "Group", "name": "carol"}), Phase::Active),
    ] {
        let mut world = waiting(&["carol"]);
        world.object.spec.subjects = serde_json::from_value(json!([subject])).unwrap();
        world.stamp();
        world.settle(timestamp(1));
        world.approvals.push(answer(&world, "carol", true, 10));
        assert_eq!(world.settle(timestamp(20)).phase, expected, "{subject}");
    }

    let gate = "system:serviceaccount:ci:gate";
    let mut world = waiting(&[gate]);
    let subject = json!({"kind": "ServiceAccount", "name": "gate", "namespace": "ci"});
    world.object.spec.subjects = serde_json::from_value(json!([subject])).unwrap();
    world.stamp();
    world.settle(timestamp(1));
    world.approvals.push(answer(&world, gate, true, 10));
    assert_eq!(world.settle(timestamp(20)).phase, Phase::Pending);
    assert!(approved(&world).contains("no other approver is left"));
}

#[test]
fn a_denial_or_the_end_of_the_time_ends_it() {
    let mut world = waiting(&["carol", "dave"]);
    world.settle(timestamp(1));
    world.approvals.push(answer(&world, "carol", true, 10));
    world.approvals.push(answer(&world, "dave", false, 10));
    assert_eq!(world.settle(timestamp(11)).phase, Phase::Denied);
    assert!(approved(&world).contains("ApprovalDenied: dave denied it"));

    let mut world = waiting(&["carol", "dave"]);
    world.settle(timestamp(1));
    world.approvals.push(answer(&world, "carol", true, 10));
    assert_eq!(
        world.settle(timestamp(1800) - NANOSECOND).phase,
        Phase::Pending
    );
    // One that comes in the instant in which the time is over is too late.
    world.approvals.push(answer(&world, "dave", true, 1800));
    let status = world.settle(timestamp(1800));
    assert_eq!(status.phase, Phase::Expired);
    assert_eq!(status.ending.unwrap().reason, EndReason::ApprovalTimedOut);
    assert!(approved(&world).contains("it waited for night/dave"));
    assert_eq!(world.actions().last().unwrap(), "AccessExpired");
    assert!(world.live.is_empty());
}

#[test]
fn withdrawn_approval_does_not_count_and_unseen_denial_wins() {
    let mut world = waiting(&["carol", "dave"]);
    world.settle(timestamp(1));
    world.approvals.push(answer(&world, "carol", true, 10));
    world.settle(timestamp(11));
    world.approvals.clear();
    world.approvals.push(answer(&world, "dave", true, 12));
    assert_eq!(world.settle(timestamp(13)).phase, Phase::Pending);

    let mut world = waiting(&["carol"]);
    world.settle(timestamp(1));
    world
        .unseen_approvals
        .push(answer(&world, "carol", false, 10));
    let mut yes = answer(&world, "carol", true, 11);
    yes.metadata.name = Some("carol".into());
    world.approvals.push(yes);
    assert_eq!(world.settle(timestamp(12)).phase, Phase::Denied);
    assert!(world.live.is_empty());
}

#[test]
fn approval_counts_for_same_object_and_content_only() {
    let old = waiting(&["carol"]);
    let given = answer(&old, "carol", true, 10);
    // Another of its name, made anew.
    let mut anew = waiting(&["carol"]);
    anew.object.metadata.uid = Some("0a1b2c3d-0000-4000-8000-00000000000f".into());
    anew.stamp();
    anew.approvals.push(given.clone());
    assert_eq!(anew.settle(timestamp(20)).phase, Phase::Pending);
    // The same with another judgement: the stamp is part of what was seen.
    let mut other = waiting(&["carol", "dave"]);
    other.approvals.push(given.clone());
    other.settle(timestamp(20));
    assert!(
        approved(&other).contains("1 given for an earlier content of the request or its template")
    );
    // What it asks for was changed past admission: the stamp is for something else.
    let mut edited = waiting(&["carol"]);
    edited.settle(timestamp(1));
    edited.approvals.push(given);
    edited.object.spec.role_ref.name = "edit".into();
    assert_eq!(edited.settle(timestamp(20)).phase, Phase::Denied);
    assert!(edited.live.is_empty());
}

#[test]
fn the_policy_is_not_asked_again_after_it_was_sealed() {
    // Whoever takes the judgement out of the stamp, or writes another, has no stamp at all.
    let mut world = waiting(&["carol"]);
    let annotations = world.object.metadata.annotations.as_mut().unwrap();
    let stamp = annotations.get_mut(labels::REQUESTER).unwrap();
    let mut parsed: serde_json::Value = serde_json::from_str(stamp).unwrap();
    parsed.as_object_mut().unwrap().remove("judgement").unwrap();
    *stamp = parsed.to_string();
    let status = world.settle(timestamp(20));
    assert_eq!((status.phase, world.live.len()), (Phase::Denied, 0));
    assert!(world.condition("Ready").contains("StampForged"));
}

#[test]
fn policies_refuse_ask_for_a_reason_and_shorten() {
    let refused = Judgement {
        refused: Some(Refused {
            policy: "freeze".into(),
            failed: false,
            message: "AccessPolicy freeze refuses it: until Monday".into(),
        }),
        ..judgement(&[])
    };
    let reason = Judgement {
        require_reason: Some("night".into()),
        ..judgement(&[])
    };
    // It names none.
    let ticket = Judgement {
        tickets: vec![TicketRule {
            policy: "night".into(),
            ticket: TicketConfig::default(),
        }],
        ..judgement(&[])
    };
    for (judgement, said) in [
        (refused, "PolicyDenied"),
        (reason, "ReasonRequired"),
        (ticket, "TicketRequired"),
    ] {
        let mut world = judged(lasting("10m"), judgement);
        assert_eq!(world.settle(timestamp(1)).phase, Phase::Denied);
        assert!(world.condition("Ready").contains(said), "{said}");
        assert!(world.live.is_empty());
    }
    let short = |longest: &str| Judgement {
        longest: Some(Longest {
            policy: "night".into(),
            duration: longest.into(),
        }),
        ..judgement(&[])
    };
    let mut world = judged(lasting("10m"), short("2m"));
    assert_eq!(world.settle(timestamp(1)).expires_at, Some(timestamp(121)));
    let mut world = judged(lasting("10m"), short("2h"));
    assert_eq!(world.settle(timestamp(1)).expires_at, Some(timestamp(601)));
    // A window with instants of its own lasts no longer either.
    let mut world = judged(namespaced(|_| ()), short("2m"));
    assert_eq!(world.settle(timestamp(60)).expires_at, Some(timestamp(180)));
    // What is no duration is no time: nothing is in effect.
    let mut world = judged(lasting("10m"), short("forever"));
    world.settle(timestamp(1));
    assert!(world.bound().is_empty());
}

#[test]
fn approval_for_window_is_due_before_window_ends() {
    let mut world = judged(namespaced(|_| ()), judgement(&["carol"]));
    world.settle(timestamp(1));
    assert!(approved(&world).starts_with("False Waiting"));
    world.approvals.push(answer(&world, "carol", true, 10));
    let status = world.settle(timestamp(11));
    assert_eq!(status.next_transition_time, Some(timestamp(60)));
    assert!(approved(&world).starts_with("True"));
    assert_eq!(world.settle(timestamp(60)).expires_at, Some(timestamp(360)));

    // Who has to agree has no longer than the window lasts.
    let mut world = judged(namespaced(|_| ()), judgement(&["carol"]));
    assert_eq!(
        world.settle(timestamp(1)).approval.unwrap().until,
        timestamp(360)
    );
    assert_eq!(world.settle(timestamp(360)).phase, Phase::Expired);
    assert!(world.live.is_empty());
}

#[test]
fn approval_by_locked_user_does_not_count() {
    let mut world = waiting(&["carol", "dave"]);
    world.settle(timestamp(1));
    world.approvals.push(answer(&world, "carol", true, 10));
    let lock: AccessLock = serde_json::from_value(json!({
        "metadata": {"name": "incident-7"},
        "spec": {"target": {"user": "carol"}, "reason": "stolen laptop"},
    }))
    .unwrap();
    world.locks = Locks {
        all: vec![Arc::new(lock)],
        unreadable: 0,
    };
    world.approvals.push(answer(&world, "dave", true, 20));
    assert_eq!(world.settle(timestamp(21)).phase, Phase::Pending);
    assert!(approved(&world).contains("by a locked user"));
    world.locks = Locks::default();
    assert_eq!(world.settle(timestamp(22)).phase, Phase::Active);
}

#[test]
fn a_crash_after_the_binding_finds_who_approved_it_again() {
    let mut world = waiting(&["carol"]);
    world.settle(timestamp(1));
    world.approvals.push(answer(&world, "carol", true, 10));
    world.status_fails = true;
    world.pass(timestamp(11));
    world.status_fails = false;
    world.approvals.clear();
    let status = world.settle(timestamp(12));
    assert_eq!(status.expires_at, Some(timestamp(611)));
    assert!(approved(&world).contains("Approved by carol"));
    let granted = world.actions().into_iter();
    assert_eq!(
        granted.filter(|action| action == "AccessGranted").count(),
        1
    );
}

#[test]
fn answers_to_what_belongs_to_the_cluster_are_in_the_namespace_of_oz() {
    let object = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "TransientClusterRoleBinding",
        "metadata": {"name": "on-call"},
        "spec": {
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alice"}],
            "duration": "10m",
        },
    });
    let world = World::<TransientClusterRoleBinding>::from_object(object);
    let mut world = judged(world, judgement(&["carol"]));
    world.settle(timestamp(1));
    let given = answer(&world, "carol", true, 10);
    assert_eq!(given.metadata.namespace.as_deref(), Some(OWN));
    // Elsewhere it is none.
    let mut elsewhere = given.clone();
    elsewhere.metadata.namespace = Some("shop".into());
    world.approvals.push(elsewhere);
    assert_eq!(world.settle(timestamp(11)).phase, Phase::Pending);
    world.approvals.push(given);
    assert_eq!(world.settle(timestamp(12)).phase, Phase::Active);
}

#[test]
fn a_published_kind_cannot_wait_and_is_denied() {
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "TransientRoleBinding",
        "metadata": {"name": "on-call", "namespace": "shop"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "alice"}],
        "validFrom": timestamp(0), "validUntil": timestamp(360),
    });
    let world = World::<example_com::RoleBinding>::from_object(object);
    let mut world = judged(world, judgement(&["carol"]));
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Denied);
    assert!(world.condition("Ready").contains("NotApprovable"));
    assert!(world.live.is_empty());
}
