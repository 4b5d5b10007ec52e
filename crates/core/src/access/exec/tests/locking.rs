//! A lock ends a grant, and denies requests without a grant.

use std::sync::Arc;

use oz_api::{AccessLock, Bind, EndReason, Phase, conditions};
use oz_trail::Decision;
use serde_json::{Value, json};

use super::world::*;
use crate::access::lock::Locks;

fn lock(target: &Value, until: Option<&str>) -> Locks {
    let lock: AccessLock = serde_json::from_value(json!({
        "metadata": {"name": "incident-7"},
        "spec": {"target": target, "reason": "stolen laptop", "until": until},
    }))
    .unwrap();
    Locks {
        all: vec![Arc::new(lock)],
        unreadable: 0,
    }
}

/// Returns the reason and message for which access is not valid, by the status.
fn find_condition(world: &World) -> (String, String) {
    let status = world.status();
    let found = conditions::find(&status.conditions, conditions::ACCESS_STILL_VALID).unwrap();
    assert_eq!(found.status, "False");
    (found.reason.clone(), found.message.clone())
}

/// Returns the targets of locks, one of each form.
fn targets() -> [Value; 4] {
    [
        json!({"user": "alice"}),
        json!({"group": "devs"}),
        json!({"namespace": "shop"}),
        json!({"template": {"namespace": "shop", "name": "shell"}}),
    ]
}

#[test]
fn a_lock_ends_a_grant_with_its_sessions_and_the_record_names_it() {
    for target in targets() {
        let mut world = World::new();
        world.settle(timestamp(1));
        world.locks = lock(&target, None);
        let status = world.settle(timestamp(2));
        assert_eq!(status.phase, Phase::Revoked, "{target}");
        assert_eq!(status.ending.unwrap().reason, EndReason::Locked);
        assert!(world.live.is_empty(), "{target}");
        assert_eq!(world.ended.len(), 1, "{target}");
        let (reason, message) = find_condition(&world);
        assert_eq!(reason, "Locked");
        let by = "is locked by AccessLock incident-7: stolen laptop";
        assert!(message.contains(by), "{message}");
        let record = world.records.last().unwrap();
        assert_eq!(record.decision, Decision::End);
        assert_eq!(record.reason, "Locked");
        assert!(record.message.contains(by), "{record:?}");
    }
}

#[test]
fn locked_request_is_denied_and_stays_denied_after_unlock() {
    for target in targets() {
        let mut world = World::new();
        world.locks = lock(&target, Some("2026-01-01T13:00:00Z"));
        let status = world.settle(timestamp(1));
        assert_eq!(status.phase, Phase::Denied, "{target}");
        assert!(world.live.is_empty());
        assert_eq!(world.actions(), ["RequestDenied"]);
        let (reason, message) = find_condition(&world);
        assert_eq!(reason, "Locked");
        assert!(
            message.contains("AccessLock incident-7 until 2026-01-01T13:00:00Z: stolen laptop"),
            "{message}"
        );
        world.locks = Locks::default();
        assert_eq!(world.settle(timestamp(2)).phase, Phase::Denied);
    }
}

#[test]
fn end_of_grant_by_lock_continues_after_unlock() {
    let mut world = World::new();
    world.settle(timestamp(1));
    world.locks = lock(&json!({"user": "alice"}), None);
    world.records_fail = true;
    world.pass(timestamp(2));
    world.locks = Locks::default();
    world.records_fail = false;
    let status = world.settle(timestamp(3));
    assert_eq!(status.ending.unwrap().reason, EndReason::Locked);
    assert_eq!((status.phase, world.live.len()), (Phase::Revoked, 0));
}

#[test]
fn unrelated_or_expired_lock_causes_no_writes() {
    let mut world = World::new();
    world.settle(timestamp(1));
    let writes = world.writes;
    for target in [
        json!({"user": "bob"}),
        json!({"group": "ops"}),
        json!({"namespace": "mall"}),
        json!({"template": {"namespace": "mall", "name": "shell"}}),
    ] {
        world.locks = lock(&target, None);
        assert_eq!(world.settle(timestamp(2)).phase, Phase::Active, "{target}");
    }
    // An expired lock does not end the grant either.
    world.locks = lock(&json!({"user": "alice"}), Some("2026-01-01T12:00:00Z"));
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);
    assert_eq!(world.writes, writes);
}

#[test]
fn a_grant_that_binds_groups_ends_with_a_lock_on_one_of_them() {
    let mut world = World::new();
    world.config().bind = Bind::Groups;
    world.config().allowed_groups.push("ops".into());
    world.settle(timestamp(1));
    world.locks = lock(&json!({"group": "ops"}), None);
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Revoked);
    // The lock also prevents new grants.
    let mut world = World::new();
    world.config().bind = Bind::Groups;
    world.config().allowed_groups.push("ops".into());
    world.locks = lock(&json!({"group": "ops"}), None);
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Denied);
}

#[test]
fn unreadable_lock_blocks_new_grants_and_keeps_existing_ones() {
    let unread = Locks {
        all: Vec::new(),
        unreadable: 1,
    };
    let mut world = World::new();
    world.locks = unread.clone();
    assert!(is_transient(&world.pass(timestamp(1))));
    assert_eq!(
        (world.status().phase, world.live.len()),
        (Phase::Pending, 0)
    );
    world.locks = Locks::default();
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);
    world.locks = unread;
    assert_eq!(world.settle(timestamp(3)).phase, Phase::Active);
}

#[test]
fn time_comes_before_a_lock() {
    let mut world = World::new();
    world.settle(timestamp(1));
    world.locks = lock(&json!({"user": "alice"}), None);
    let status = world.settle(timestamp(300));
    assert_eq!(status.phase, Phase::Expired);
}

#[test]
fn a_lock_costs_no_reads() {
    let mut world = World::new();
    world.locks = lock(&json!({"user": "alice"}), None);
    let known = crate::access::exec::Facts {
        template: world.template.clone().map(Arc::new),
        locks: world.locks.clone(),
        ..Default::default()
    };
    assert!(world.asks(timestamp(1), &known).is_none());
    world.locks = Locks::default();
    world.settle(timestamp(1));
    assert!(world.asks(timestamp(2), &known).is_none());
}
