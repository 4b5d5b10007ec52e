//! Which objects are a parent's children.

use serde_json::{Value, json};

use super::world::*;
use crate::composite::Question;
use crate::composite::api::Method::InPlace;

fn selecting() -> World {
    let mut world = World::with(InPlace, |composite| {
        composite["spec"]["generateSelector"] = json!(false);
    });
    world.parent.data["spec"] = json!({"selector": {"matchLabels": {"crew": "one"}}});
    world
}

fn owned(uid: &str) -> Value {
    json!([{"apiVersion": "test.example.org/v1", "kind": "Fleet", "name": "one", "uid": uid, "controller": true}])
}

#[test]
fn what_is_selected_and_controlled_by_nobody_is_adopted_once_the_parent_is_known_to_live() {
    let mut world = selecting();
    world.stray(json!({"name": "a", "namespace": "dev", "uid": "a", "labels": {"crew": "one"}}));
    assert_eq!(world.verdict(at(0)).question(), Some(Question::Alive));
    world.facts.alive = Some(Ok(true));
    let mut child = map("a", "x");
    child["metadata"]["labels"] = json!({"crew": "one"});
    world.answers(&json!({"children": [child]}));
    assert_eq!(world.pass(at(0)), ["adopt a", "change a"]);

    // A parent that is being deleted, or whose life nobody vouches for, adopts nothing.
    for alive in [
        Ok(false),
        Err(crate::controller::Failure::transient("Unreachable", "no")),
    ] {
        let mut world = selecting();
        world
            .stray(json!({"name": "a", "namespace": "dev", "uid": "a", "labels": {"crew": "one"}}));
        world.facts.alive = Some(alive);
        world.answers(&json!({"children": []}));
        assert!(world.pass(at(0)).is_empty());
    }
}

#[test]
fn what_is_not_selected_any_more_is_let_go_and_what_others_control_is_theirs() {
    let mut world = selecting();
    world.stray(
        json!({"name": "mine", "namespace": "dev", "uid": "a", "ownerReferences": owned("parent")}),
    );
    world.stray(json!({
        "name": "theirs", "namespace": "dev", "uid": "b", "labels": {"crew": "one"},
        "ownerReferences": owned("another"),
    }));
    world
        .stray(json!({"name": "far", "namespace": "other", "uid": "c", "labels": {"crew": "one"}}));
    world.answers(&json!({"children": []}));
    assert_eq!(world.pass(at(0)), ["disown mine"]);
}

#[test]
fn a_parent_without_a_selector_says_so() {
    for (spec, said) in [
        (json!({}), "has no spec.selector"),
        (json!({"selector": {}}), "selects everything"),
        (
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
            "no label selector",
        ),
        (json!({"selector": 7}), "no label selector"),
    ] {
        let mut world = selecting();
        world.parent.data["spec"] = spec;
        let obstacle = world.plan(at(0)).obstacle.unwrap();
        assert!(obstacle.message.contains(said), "{obstacle}");
    }
}
