//! The expiry of children, for any response of the function.

use jiff::{SignedDuration, Timestamp};
use oz_api::composite::Method::Recreate;
use oz_core::controller::{Controller, Failure};
use serde_json::json;

use super::world::*;
use crate::ends;
use crate::supervise::Mode;

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

/// Returns a world with one child from the function that lasts until this instant.
fn ending(until: Timestamp) -> World {
    let mut world = World::new(Recreate);
    let without = json!({"children": []});
    world.answers_ahead(&json!({"children": [map("a", "x")]}), &[(until, without)]);
    assert_eq!(world.pass(timestamp(0)), ["hold", "create a"]);
    assert_eq!(
        ends::read(&world.composite.keys, "parent", &world.live[0]),
        Some(until)
    );
    world
}

#[test]
fn a_child_goes_at_the_nanosecond_that_the_preview_named_though_the_function_fails() {
    let mut world = ending(timestamp(10));
    world.facts.called = Some(Err(Failure::transient("PolicyInvalid", "no").into()));
    assert!(world.pass(timestamp(10) - NANOSECOND).is_empty());
    assert_eq!(world.plan(timestamp(9)).wake, Some(timestamp(10)));
    assert_eq!(world.pass(timestamp(10)), ["delete a"]);
}

#[test]
fn expired_children_are_deleted_without_lookups() {
    for mode in [Mode::Run, Mode::Ends, Mode::Leave] {
        let mut world = ending(timestamp(10));
        world.composite.mode = mode;
        world.facts = Default::default();
        assert_eq!(world.pass(timestamp(11)), ["delete a"], "{mode:?}");
    }
    let mut world = ending(timestamp(10));
    world.composite.mode = Mode::Ends;
    world.facts = Default::default();
    assert_eq!(world.plan(timestamp(5)).wake, Some(timestamp(10)));
    assert_eq!(
        world
            .composite
            .lasts_until(Some(&world.parent), &world.live),
        Some(timestamp(10))
    );
}

#[test]
fn an_end_that_changes_is_written_anew_and_one_that_is_gone_is_taken_back() {
    let mut world = ending(timestamp(10));
    let child = json!({"children": [map("a", "x")]});
    world.answers_ahead(
        &child,
        &[(timestamp(10), child.clone()), (timestamp(20), json!({}))],
    );
    assert_eq!(world.pass(timestamp(5)), ["change a"]);
    let keys = world.composite.keys.clone();
    assert_eq!(
        ends::read(&keys, "parent", &world.live[0]),
        Some(timestamp(20))
    );
    world.answers_ahead(&child, &[(timestamp(20), child.clone())]);
    assert_eq!(world.pass(timestamp(6)), ["change a"]);
    assert_eq!(ends::read(&keys, "parent", &world.live[0]), None);
    assert!(world.pass(timestamp(7)).is_empty());
    assert!(world.pass(timestamp(30)).is_empty());
}

#[test]
fn a_statement_of_another_child_parent_or_hand_is_none() {
    let world = ending(timestamp(10));
    let keys = &world.composite.keys;
    let genuine = world.live[0].clone();
    assert_eq!(ends::read(keys, "another", &genuine), None);
    let mut renamed = genuine.clone();
    renamed.object.metadata.name = Some("b".to_owned());
    assert_eq!(ends::read(keys, "parent", &renamed), None);
    let mut forged = genuine;
    let annotations = forged.object.metadata.annotations.as_mut().unwrap();
    let text = annotations.get_mut(ends::UNTIL).unwrap();
    *text = text.replace("\"until\":\"20", "\"until\":\"30");
    assert_eq!(ends::read(keys, "parent", &forged), None);
}

#[test]
fn child_with_seal_of_earlier_release_is_expired() {
    let world = ending(timestamp(10));
    let keys = &world.composite.keys;
    let mut child = world.live[0].clone();
    let annotations = child.object.metadata.annotations.as_mut().unwrap();
    let text = annotations.get_mut(ends::UNTIL).unwrap();
    let mut said: serde_json::Value = serde_json::from_str(text).unwrap();
    said.as_object_mut().unwrap().remove("sig");
    said["mac"] = json!("q83v");
    *text = said.to_string();
    let over = jiff::Timestamp::UNIX_EPOCH;
    assert_eq!(ends::read(keys, "parent", &child), Some(over));
    assert_eq!(ends::read(keys, "another", &child), None);
    // The function creates it again, with a valid key.
    let mut world = world;
    world.live[0] = child;
    assert_eq!(world.pass(timestamp(5))[0], "delete a");
}

#[test]
fn deleted_parent_or_composite_deletes_expiring_children() {
    let mut world = ending(timestamp(10));
    world.facts = Default::default();
    world.parent.metadata.deletion_timestamp = Some(time());
    // An orphaning deletion removed the reference.
    world.live[0].object.metadata.owner_references = None;
    assert_eq!(world.pass(timestamp(1)), ["delete a", "release"]);

    let mut world = ending(timestamp(10));
    world.facts = Default::default();
    world.composite.mode = Mode::Leave;
    world.stray(json!({"name": "stays", "namespace": "dev", "uid": "s"}));
    assert_eq!(world.pass(timestamp(1)), ["delete a", "release"]);
    assert_eq!(world.live.len(), 1);
}

#[test]
fn a_parent_that_is_deleted_goes_though_only_ends_are_run() {
    let mut world = ending(timestamp(10));
    world.facts = Default::default();
    world.composite.mode = Mode::Ends;
    world.parent.metadata.deletion_timestamp = Some(time());
    assert_eq!(world.pass(timestamp(1)), ["delete a", "release"]);
}

#[test]
fn instants_from_now_on_are_found_wherever_an_author_may_write_them() {
    let parent = json!({
        "metadata": {"creationTimestamp": timestamp(50)}, "status": {"at": timestamp(51)},
        "validFrom": timestamp(1).to_string(), "validUntil": timestamp(3).to_string(), "now": timestamp(0),
        "list": [timestamp(3), "2026", "never", 7, {"deep": "2027-01-15T10:00:02.000000001+02:00"}],
        "before": timestamp(-1), "key": {"2027-01-15T08:00:05Z": "tomorrow"},
        "long": "2027-01-15T08:00:00.000000000000000000000000000000000000000000000000000000000Z",
    });
    let found = ends::instants(&parent, timestamp(0));
    let deep = timestamp(2) + jiff::SignedDuration::from_nanos(1);
    assert_eq!(found, [timestamp(0), timestamp(1), deep, timestamp(3)]);
}

#[test]
fn times_in_status_are_ignored_in_comparison_and_phases_are_not() {
    let answer = |phase: &str, at: jiff::Timestamp| {
        json!({
            "children": [{"kind": "Bed"}],
            "status": {"phase": phase, "conditions": [{"lastTransitionTime": at}]},
        })
    };
    let compared = crate::compared;
    assert_eq!(
        compared(&answer("Open", timestamp(1))),
        compared(&answer("Open", timestamp(2)))
    );
    assert_ne!(
        compared(&answer("Open", timestamp(1))),
        compared(&answer("Over", timestamp(1)))
    );
    assert_ne!(
        compared(&answer("Open", timestamp(1))),
        compared(&json!({"children": []}))
    );
}
