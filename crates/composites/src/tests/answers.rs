//! The effects of a function's response.

use kube::core::DynamicObject;
use oz_api::composite::Method::{InPlace, OnDelete, Recreate};
use oz_core::controller::{Controller, Failure, FailureClass, Outcome, Step};
use serde_json::{Value, json};

use super::world::*;
use crate::Refused;
use crate::protocol::Answer;

#[test]
fn children_are_created_changed_and_deleted_as_declared() {
    for (method, changed) in [
        (InPlace, &["change a"][..]),
        (Recreate, &["delete a", "create a"]),
        (OnDelete, &[]),
    ] {
        let mut world = World::new(method);
        world.answers(&json!({"children": [map("a", "x"), map("b", "x")]}));
        assert_eq!(world.pass(timestamp(0)), ["create a", "create b"]);
        assert!(
            world.pass(timestamp(1)).is_empty(),
            "{method:?}: nothing is left to do"
        );
        world.answers(&json!({"children": [map("a", "y"), map("b", "x")]}));
        assert_eq!(world.pass(timestamp(2)), changed, "{method:?}");
        world.answers(&json!({"children": [map("b", "x")]}));
        assert_eq!(world.pass(timestamp(3)), ["delete a"], "{method:?}");
        assert!(world.pass(timestamp(4)).is_empty());
    }
}

#[test]
fn a_child_is_tied_to_its_parent() {
    let mut world = World::new(InPlace);
    world.answers(&json!({"children": [map("a", "x")]}));
    world.pass(timestamp(0));
    let metadata = &world.live[0].object.metadata;
    assert_eq!(metadata.namespace.as_deref(), Some("dev"));
    assert_eq!(
        metadata.labels.as_ref().unwrap()["controller-uid"],
        "parent"
    );
    let owner = &metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.controller),
        ("Fleet", Some(true))
    );
    assert_eq!(owner.block_owner_deletion, Some(true));
}

#[test]
fn removed_field_and_drift_are_changes_of_child() {
    let mut world = World::new(InPlace);
    let mut both = map("a", "x");
    both["data"]["more"] = json!("y");
    world.answers(&json!({"children": [both]}));
    world.pass(timestamp(0));
    world.answers(&json!({"children": [map("a", "x")]}));
    assert_eq!(world.pass(timestamp(1)), ["change a"]);
    world.live[0].object.data["data"]["value"] = json!("drift");
    assert_eq!(world.pass(timestamp(2)), ["change a"]);
}

#[test]
fn a_function_that_echoes_what_it_is_shown_settles() {
    for method in [InPlace, Recreate] {
        let mut world = World::new(method);
        world.answers(&json!({"children": [map("a", "x")]}));
        world.pass(timestamp(0));
        for second in 1..5 {
            let live = &mut world.live[0].object;
            live.metadata.resource_version = Some(second.to_string());
            live.metadata.creation_timestamp = Some(time());
            let mut echo = serde_json::to_value(&*live).unwrap();
            echo["apiVersion"] = json!("v1");
            echo["kind"] = json!("ConfigMap");
            echo["status"] = json!({"seen": second});
            world.answers(&json!({"children": [echo]}));
            let done = world.pass(timestamp(second));
            assert!(
                second == 1 || done.is_empty(),
                "{method:?} {second}: {done:?}"
            );
        }
    }
}

#[test]
fn two_subjects_of_one_name_are_two() {
    let mut world = World::new(Recreate);
    let mut child = map("a", "x");
    child["subjects"] =
        json!([{"name": "default", "namespace": "a"}, {"name": "default", "namespace": "b"}]);
    world.answers(&json!({"children": [child]}));
    world.pass(timestamp(0));
    assert!(world.pass(timestamp(1)).is_empty());
}

#[test]
fn invalid_child_is_named_and_nothing_is_changed() {
    let mut world = World::new(InPlace);
    world.answers(&json!({"children": [map("a", "x")]}));
    world.pass(timestamp(0));
    let with = |path: &str, value: Value| {
        let mut child = map("b", "x");
        let (at, last) = path.rsplit_once('/').unwrap();
        child.pointer_mut(at).unwrap()[last] = value;
        child
    };
    for (child, said) in [
        (json!("text"), "a text, not an object"),
        (
            with("/kind", json!("Secret")),
            "not among spec.childResources",
        ),
        (with("/metadata/name", json!("")), "without a name"),
        (
            with("/metadata/namespace", json!("other")),
            "is in namespace other",
        ),
        (
            with(
                "/metadata/labels",
                json!({"oz.wizardofoz.co/owner-uid": "x"}),
            ),
            "only oz may write",
        ),
        (
            with(
                "/metadata/labels",
                json!({"app.kubernetes.io/managed-by": "oz"}),
            ),
            "only oz may write",
        ),
        (
            with(
                "/metadata/ownerReferences",
                json!([
                    {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true},
                ]),
            ),
            "names another controller",
        ),
        (with("/metadata/labels", json!(7)), "has invalid metadata"),
        (map("a", "x"), "repeats"),
    ] {
        world.answers(&json!({"children": [map("a", "y"), child]}));
        let plan = world.plan(timestamp(1));
        assert_eq!(plan.steps().count(), 0, "{said}");
        let obstacle = plan.obstacle.unwrap();
        assert_eq!(
            (obstacle.class, obstacle.reason),
            (FailureClass::Invalid, "ResponseInvalid")
        );
        assert!(obstacle.message.contains(said), "{obstacle}");
        assert!(obstacle.message.contains("Fleet dev/one"), "{obstacle}");
    }
}

#[test]
fn an_answer_is_read_as_its_mode_says() {
    let loose = json!({"children": null, "more": 1, "status": null, "resyncAfterSeconds": 1.5});
    let read = Answer::read(&loose, false).unwrap();
    assert_eq!((read.resync_after, read.finalized), (Some(1.5), false));
    assert!(
        Answer::read(&loose, true)
            .unwrap_err()
            .to_string()
            .contains("\"more\"")
    );
    for (answer, said) in [
        (json!([]), "a list, not an object"),
        (json!({"children": {}}), "an object as its children"),
        (json!({"status": 1}), "a number as its status"),
        (json!({"resyncAfterSeconds": "1"}), "not a number"),
        (json!({"finalized": "yes"}), "a text as finalized"),
        (json!({"children": vec![json!({}); 1_001]}), "1001 children"),
    ] {
        assert!(
            Answer::read(&answer, false)
                .unwrap_err()
                .to_string()
                .contains(said),
            "{said}"
        );
    }
}

#[test]
fn the_status_is_the_functions_with_the_generation_and_one_condition_of_each_type() {
    let mut world = World::new(InPlace);
    let conditions = json!([
        {"type": "effective", "status": "True", "lastTransitionTime": "2"},
        {"type": "other", "status": "False"},
        {"type": "effective", "status": "False", "lastTransitionTime": "1"},
    ]);
    world.answers(&json!({"children": [], "status": {"conditions": conditions}}));
    let decision = world.decide(timestamp(0));
    let status =
        world
            .composite
            .status(timestamp(0), &world.parent, &decision, &Outcome::default());
    assert_eq!(
        status,
        json!({"conditions": [conditions[0], conditions[1]], "observedGeneration": 3})
    );
    // The response of a function that fails does not change the status.
    world.parent.data["status"] = json!({"before": true});
    world.facts.called = Some(Err(Failure::transient("HookFailed", "no").into()));
    let decision = world.decide(timestamp(0));
    let status =
        world
            .composite
            .status(timestamp(0), &world.parent, &decision, &Outcome::default());
    assert_eq!(status, json!({"before": true}));
}

#[test]
fn parent_is_requeued_as_function_declaration_or_spec_requires() {
    let seconds = |world: &World| {
        world
            .plan(timestamp(0))
            .wake
            .map(|wake| wake.duration_since(timestamp(0)).as_secs_f64())
    };
    let mut world = World::new(InPlace);
    world.answers(&json!({}));
    assert_eq!(seconds(&world), None);
    for (asked, wakes) in [(1.5, 1.5), (0.000_001, 0.1), (1e300, 31_536_000.0)] {
        world.answers(&json!({"resyncAfterSeconds": asked}));
        assert_eq!(seconds(&world), Some(wakes));
    }
    world.parent.data["spec"] =
        json!({"past": timestamp(-5), "ahead": [timestamp(9).to_string()], "later": timestamp(20)});
    world.answers(&json!({}));
    assert_eq!(seconds(&world), Some(9.0));
    let mut world = World::with(InPlace, |spec| {
        spec["spec"]["resyncPeriodSeconds"] = json!(300)
    });
    world.answers(&json!({"resyncAfterSeconds": 500}));
    assert_eq!(seconds(&world), Some(300.0));
    // A function that asks for a later call is called later.
    world.facts.called = Some(Err(Refused {
        failure: Failure::invalid("HookBusy", "later"),
        again: Some(timestamp(7)),
    }));
    assert_eq!(seconds(&world), Some(7.0));
}

#[test]
fn a_request_names_every_kind_that_is_declared() {
    let mut world = World::new(InPlace);
    let asked = |world: &World| match world.verdict(timestamp(0)).question().unwrap() {
        crate::Question::Call(_, request) => request,
        other => panic!("{other:?}"),
    };
    let request = asked(&world);
    assert_eq!(request["children"], json!({"ConfigMap.v1": {}}));
    assert_eq!(request["parent"]["apiVersion"], "test.example.org/v1");
    assert_eq!(
        (&request["finalizing"], &request["related"]),
        (&json!(false), &json!({}))
    );
    world.answers(&json!({"children": [map("a", "x")]}));
    world.pass(timestamp(0));
    world.facts = Default::default();
    let named = |world: &World| {
        let children = asked(world)["children"]["ConfigMap.v1"].clone();
        children
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(named(&world), ["a"]);
    world.composite.declared.sync.version = oz_api::composite::HookVersion::V2;
    assert_eq!(named(&world), ["dev/a"]);
}

#[test]
fn a_parent_without_our_label_is_nobodys() {
    let mut world = World::with(InPlace, |composite| {
        composite["spec"]["parentResource"]["labelSelector"] =
            json!({"matchLabels": {"run": "yes"}});
    });
    let nothing: Vec<Step> = Vec::new();
    assert_eq!(
        world
            .plan(timestamp(0))
            .steps()
            .cloned()
            .collect::<Vec<_>>(),
        nothing
    );
    world.parent.metadata.labels = Some([("run".to_owned(), "yes".to_owned())].into());
    assert!(world.verdict(timestamp(0)).question().is_some());
    let _: &DynamicObject = &world.parent;
}
