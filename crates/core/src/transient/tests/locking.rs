//! Locks end and prevent transient bindings, by requester, subject and namespace.

use std::sync::Arc;

use oz_api::{AccessLock, EndReason, Phase};
use serde_json::{Value, json};

use super::world::*;
use crate::access::lock::Locks;

fn lock(target: &Value) -> Locks {
    let lock: AccessLock = serde_json::from_value(json!({
        "metadata": {"name": "incident-7"},
        "spec": {"target": target, "reason": "stolen laptop"},
    }))
    .unwrap();
    Locks {
        all: vec![Arc::new(lock)],
        unreadable: 0,
    }
}

/// Bob asked, alice is bound, in shop.
fn targets() -> [Value; 3] {
    [
        json!({"user": "bob"}),
        json!({"user": "alice"}),
        json!({"namespace": "shop"}),
    ]
}

#[test]
fn a_lock_ends_a_binding_that_stands() {
    for target in targets() {
        let mut world = namespaced(|_| ());
        assert_eq!(world.settle(timestamp(60)).phase, Phase::Active);
        world.locks = lock(&target);
        let status = world.settle(timestamp(61));
        assert_eq!((status.phase, world.bound().len()), (Phase::Revoked, 0));
        assert_eq!(status.ending.unwrap().reason, EndReason::Locked);
        let record = world.records.last().unwrap();
        assert_eq!(record.reason, "Locked");
        assert!(
            record.message.contains("AccessLock incident-7"),
            "{record:?}"
        );
        // It stays ended.
        world.locks = Locks::default();
        assert_eq!(world.settle(timestamp(62)).phase, Phase::Revoked);
    }
}

#[test]
fn a_lock_refuses_one_that_is_not_made_yet_also_before_its_window() {
    for (now, target) in [0, 60]
        .into_iter()
        .flat_map(|now| targets().map(|it| (now, it)))
    {
        let mut world = namespaced(|_| ());
        world.locks = lock(&target);
        let status = world.settle(timestamp(now));
        assert_eq!(
            (status.phase, world.live.len()),
            (Phase::Denied, 0),
            "{target}"
        );
        assert!(world.condition("Ready").contains("Locked"));
    }
}

#[test]
fn an_end_that_a_lock_began_is_no_drift_when_the_lock_is_gone() {
    let mut world = namespaced(|_| ());
    world.settle(timestamp(60));
    world.locks = lock(&json!({"user": "bob"}));
    world.records_fail = true;
    world.pass(timestamp(61));
    world.locks = Locks::default();
    world.records_fail = false;
    let status = world.settle(timestamp(62));
    assert_eq!(status.ending.unwrap().reason, EndReason::Locked);
    assert_eq!(status.phase, Phase::Revoked);
    assert!(!world.actions().contains(&"DriftDetected".to_owned()));
}

#[test]
fn a_lock_that_is_about_others_costs_nothing() {
    let mut world = namespaced(|_| ());
    world.settle(timestamp(60));
    let writes = world.writes;
    for target in [
        json!({"user": "carol"}),
        json!({"namespace": "mall"}),
        json!({"template": {"namespace": "shop", "name": "view"}}),
    ] {
        world.locks = lock(&target);
        assert_eq!(world.settle(timestamp(61)).phase, Phase::Active, "{target}");
    }
    assert_eq!(world.writes, writes);
}
