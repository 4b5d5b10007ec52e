//! Children that the API server stores otherwise than they were applied.

use oz_api::composite::Method;
use oz_core::controller::Verdict;
use serde_json::{Value, json};

use super::world::*;
use crate::Question;
use crate::stored::Doubt;

/// Returns a world with a child that was applied with the first content, and changed once; the API server has the other
/// content instead.
fn stored(method: Method, applied: &Value, stored: &Value) -> World {
    let mut world = World::new(method);
    let child = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "spec": applied,
    });
    world.answers(&json!({"children": [child]}));
    assert_eq!(world.pass(timestamp(0)), ["create a"]);
    world.live[0].object.metadata.generation = Some(2);
    world.live[0].object.data["spec"] = stored.clone();
    world.facts.stored = Some(Vec::new());
    world
}

fn doubts(world: &World) -> Vec<Doubt> {
    match world.verdict(timestamp(1)) {
        Verdict::Need {
            question: Question::Stored(doubts),
            ..
        } => doubts,
        other => panic!("{other:?}"),
    }
}

/// Values as they are applied, and as an API server stores them.
fn table() -> Vec<(Value, Value)> {
    vec![
        (
            json!({"env": [{"name": "A", "value": ""}]}),
            json!({"env": [{"name": "A"}]}),
        ),
        (json!({"paused": false}), json!({})),
        (json!({"backoff": 0}), json!({"other": 1})),
        (json!({"cpu": "1000m"}), json!({"cpu": "1"})),
        (json!({"memory": "1024Mi"}), json!({"memory": "1Gi"})),
        (
            json!({"ports": [{"port": 80}, {"port": 80}]}),
            json!({"ports": [{"port": 80}]}),
        ),
        (json!({"unknown": "x"}), json!({})),
    ]
}

#[test]
fn child_that_an_application_would_not_change_is_not_written() {
    for (applied, held) in table() {
        for method in [Method::InPlace, Method::Recreate] {
            let mut world = stored(method, &applied, &held);
            let doubts = doubts(&world);
            assert!(doubts[0].is_unchanged(&world.live[0].object), "{applied}");
            world.facts.stored = Some(doubts.into_iter().map(|doubt| (doubt, true)).collect());
            assert!(world.pass(timestamp(1)).is_empty(), "{applied} {method:?}");
        }
    }
}

#[test]
fn child_that_an_application_would_change_is_written() {
    for (method, expected) in [
        (Method::InPlace, &["change a"][..]),
        (Method::Recreate, &["delete a", "create a"]),
    ] {
        let mut world = stored(method, &json!({"replicas": 2}), &json!({"replicas": 3}));
        let doubts = doubts(&world);
        let mut restored = world.live[0].object.clone();
        restored.data["spec"]["replicas"] = json!(2);
        assert!(!doubts[0].is_unchanged(&restored));
        world.facts.stored = Some(doubts.into_iter().map(|doubt| (doubt, false)).collect());
        assert_eq!(world.pass(timestamp(1)), expected);
    }
}

#[test]
fn result_counts_for_the_child_as_it_was() {
    let mut world = stored(
        Method::InPlace,
        &json!({"replicas": 2}),
        &json!({"replicas": 3}),
    );
    let known = doubts(&world).into_iter().map(|doubt| (doubt, true));
    world.facts.stored = Some(known.collect());
    assert!(world.pass(timestamp(1)).is_empty());
    world.live[0].object.data["spec"]["replicas"] = json!(4);
    assert_eq!(doubts(&world).len(), 1, "another client changed it since");
}

#[test]
fn changed_response_needs_no_dry_run() {
    let mut world = stored(Method::InPlace, &json!({"a": ""}), &json!({}));
    let child = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "spec": {"a": "x"},
    });
    world.answers(&json!({"children": [child]}));
    assert_eq!(world.pass(timestamp(1)), ["change a"]);
}

#[test]
fn status_is_not_compared() {
    let world = stored(Method::InPlace, &json!({"a": ""}), &json!({}));
    let doubt = &doubts(&world)[0];
    let mut applied = world.live[0].object.clone();
    applied.data["status"] = json!({"ready": true});
    assert!(doubt.is_unchanged(&applied));
}

#[test]
fn plan_takes_missing_empty_values_for_stored() {
    for (applied, held, expected) in [
        (
            json!({"env": [{"name": "A", "value": ""}]}),
            json!({"env": [{"name": "A"}]}),
            true,
        ),
        (json!({"paused": false, "backoff": 0}), json!({}), true),
        (json!({"replicas": 0}), json!({"replicas": 1}), false),
        (json!({"unknown": "x"}), json!({}), false),
    ] {
        let world = stored(Method::InPlace, &applied, &held);
        assert_eq!(doubts(&world)[0].lacks_only_empty(), expected, "{applied}");
    }
}
