//! The call of a function for the end of its children, which are deleted before.

use jiff::Timestamp;
use oz_api::composite::Method;
use oz_core::controller::{Failure, Live, Verdict};
use serde_json::{Value, json};

use super::world::*;
use crate::expired::Expired;
use crate::supervise::Mode;
use crate::{Function, Question};

/// Returns a world with one child until this instant, in which expired children are recorded.
fn ending(until: Timestamp) -> World {
    let mut world = World::new(Method::InPlace);
    let without = json!({"children": []});
    world.answers_ahead(&json!({"children": [map("a", "x")]}), &[(until, without)]);
    assert_eq!(world.pass(timestamp(0)), ["hold", "create a"]);
    world.facts.called = None;
    world.facts.expired = Some(Vec::new());
    world
}

/// Returns the children that the decision records.
fn recorded(world: &World, now: Timestamp) -> Vec<Live> {
    match world.verdict(now) {
        Verdict::Need {
            question: Question::Expired(children),
            ..
        } => children,
        other => panic!("{other:?}"),
    }
}

/// Returns the names of the children in the request to the function.
fn shown(world: &World, now: Timestamp) -> Vec<String> {
    let question = world.verdict(now).question();
    let Some(Question::Call(Function::Sync, request)) = question else {
        panic!("{question:?}");
    };
    let children = request["children"]["ConfigMap.v1"].as_object();
    children.unwrap().keys().cloned().collect()
}

#[test]
fn function_is_called_with_expired_children_after_their_deletion() {
    let mut world = ending(timestamp(10));
    let children = recorded(&world, timestamp(10));
    world.facts.expired = Some(children);
    // No call is between the end and the deletion.
    assert_eq!(world.pass(timestamp(10)), ["delete a"]);
    assert_eq!(shown(&world, timestamp(10)), ["a"]);
    world.answers(&json!({"children": [], "status": {"effective": "False"}}));
    let decision = world.decide(timestamp(10));
    assert_eq!(decision.plan.steps().count(), 0);
    assert_eq!(decision.state.status.unwrap()["effective"], "False");
    assert_eq!(
        decision.plan.wake,
        Some(timestamp(11)),
        "it is called once more"
    );
    world.facts.called = None;
    world.facts.expired = Some(Vec::new());
    assert!(shown(&world, timestamp(11)).is_empty());
}

#[test]
fn deletion_of_expired_children_needs_no_record() {
    for mode in [Mode::Ends, Mode::Leave, Mode::DryRun] {
        let mut world = ending(timestamp(10));
        world.composite.mode = mode;
        assert_eq!(world.pass(timestamp(10)), ["delete a"], "{mode:?}");
    }
    let mut world = ending(timestamp(10));
    world.parent.metadata.deletion_timestamp = Some(time());
    assert_eq!(world.pass(timestamp(10)), ["delete a"]);
    let mut world = ending(timestamp(10));
    world.facts.expired = None;
    assert_eq!(world.pass(timestamp(10)), ["delete a"]);
}

#[test]
fn existing_child_is_shown_in_place_of_expired_one_of_its_name() {
    let mut world = ending(timestamp(10));
    let mut expired = world.live.clone();
    expired[0].object.metadata.uid = Some("before".to_owned());
    expired[0].object.data = json!({"data": {"value": "old"}});
    world.facts.expired = Some(expired);
    let Some(Question::Call(_, request)) = world.verdict(timestamp(1)).question() else {
        panic!("no call");
    };
    assert_eq!(
        request["children"]["ConfigMap.v1"]["a"]["data"]["value"],
        "x"
    );
}

#[test]
fn record_ends_when_the_parent_has_the_status_of_the_response() {
    let mut world = ending(timestamp(10));
    let mut expired = Expired::default();
    assert!(expired.children(&world.parent).is_empty());
    expired.add("parent", world.live.clone());
    let status = |world: &mut World, status: Value| world.parent.data["status"] = status;
    status(&mut world, json!({"effective": "True"}));
    // The function failed: it is called with them again.
    assert_eq!(expired.children(&world.parent).len(), 1);
    assert_eq!(expired.children(&world.parent).len(), 1);
    expired.shown(&world.parent, json!({"effective": "False"}));
    assert_eq!(
        expired.children(&world.parent).len(),
        1,
        "the status is not written yet"
    );
    status(&mut world, json!({"effective": "False"}));
    assert!(expired.children(&world.parent).is_empty());
    assert!(expired.children(&world.parent).is_empty());
}

#[test]
fn record_ends_after_three_responses_or_one_without_a_change() {
    let world = ending(timestamp(10));
    let mut expired = Expired::default();
    expired.add("parent", world.live.clone());
    for _ in 0..3 {
        assert_eq!(expired.children(&world.parent).len(), 1);
        expired.shown(&world.parent, json!({"pruned": true}));
    }
    assert!(expired.children(&world.parent).is_empty());
    expired.add("parent", world.live.clone());
    expired.shown(&world.parent, Value::Null);
    assert!(expired.children(&world.parent).is_empty());
}

#[test]
fn function_that_fails_is_called_with_expired_children_again() {
    let mut world = ending(timestamp(10));
    world.facts.expired = Some(recorded(&world, timestamp(10)));
    assert_eq!(world.pass(timestamp(10)), ["delete a"]);
    world.facts.called = Some(Err(Failure::transient("HookFailed", "no").into()));
    assert!(world.pass(timestamp(10)).is_empty());
    world.facts.called = None;
    assert_eq!(shown(&world, timestamp(12)), ["a"]);
}
