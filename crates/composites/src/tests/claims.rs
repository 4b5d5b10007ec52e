//! The children of a parent: claims, adoption and release.

use oz_api::composite::Method::InPlace;
use oz_core::controller::Failure;
use serde_json::{Value, json};

use super::rights::{asked, fine, found, stamp};
use super::world::*;
use crate::Question;
use crate::rights::Found;

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

/// Returns a world with a parent by these authors, and an object without a controller that it selects. The function
/// returns no child.
fn tempted(authors: &[&str], metadata: &Value) -> World {
    let mut world = selecting();
    world.parent.metadata.creation_timestamp = Some(time());
    if !authors.is_empty() {
        stamp(&mut world, authors, "");
    }
    let mut stray = json!({"name": "a", "namespace": "dev", "uid": "a", "labels": {"crew": "one"}});
    for (name, value) in metadata.as_object().into_iter().flatten() {
        stray[name] = value.clone();
    }
    world.stray(stray);
    world.facts.alive = Some(Ok(true));
    world.answers(&json!({"children": []}));
    world
}

#[test]
fn selected_object_is_adopted_if_each_author_may_update_and_delete_it() {
    let mut world = tempted(&["alice", "bob"], &json!({}));
    let wants = asked(&world, timestamp(0));
    let [want] = wants.as_slice() else {
        panic!("{wants:?}");
    };
    let reviews = want.reviews().map(|(author, review)| {
        let right = review.spec.resource_attributes.unwrap_or_default();
        let parts = [right.verb, right.resource, right.namespace, right.name];
        (
            author.user.as_str(),
            parts.map(Option::unwrap_or_default).join(" "),
        )
    });
    assert_eq!(
        reviews.collect::<Vec<_>>(),
        [
            ("alice", "update configmaps dev a".to_owned()),
            ("alice", "delete configmaps dev a".to_owned()),
            ("bob", "update configmaps dev a".to_owned()),
            ("bob", "delete configmaps dev a".to_owned()),
        ]
    );
    let lacking = Found {
        lacks: Ok(Some("bob".to_owned())),
        ..fine()
    };
    let unknown = Found {
        lacks: Err(Failure::transient("Timeout", "no answer")),
        ..fine()
    };
    for refused in [lacking, unknown] {
        world.facts.rights.clear();
        found(&mut world, timestamp(0), &refused);
        assert!(world.pass(timestamp(0)).is_empty(), "{refused:?}");
    }
    world.facts.rights.clear();
    found(&mut world, timestamp(0), &fine());
    assert_eq!(world.pass(timestamp(0)), ["adopt a", "delete a"]);
}

#[test]
fn nothing_is_adopted_for_authors_who_are_not_known() {
    let mut world = tempted(&[], &json!({}));
    assert!(world.pass(timestamp(0)).is_empty());
    let mut world = tempted(&["alice"], &json!({}));
    world.parent.data["spec"]["more"] = json!("by somebody else");
    assert!(world.pass(timestamp(0)).is_empty());
}

#[test]
fn object_that_names_the_parent_is_adopted_and_one_that_names_another_is_not() {
    let label = |uid: &str| json!({"labels": {"crew": "one", "controller-uid": uid}});
    let annotation = |uid: &str| json!({"annotations": {"oz.wizardofoz.co/adoptable-by": uid}});
    for names in [label, annotation] {
        let mut world = tempted(&[], &names("parent"));
        assert_eq!(world.pass(timestamp(0)), ["adopt a", "delete a"]);
        let mut world = tempted(&[], &names("another"));
        assert!(world.pass(timestamp(0)).is_empty());
    }
}

#[test]
fn composite_adopting_like_original_requires_no_review() {
    let mut world = tempted(&[], &json!({}));
    let as_original = ["fleets".to_owned()];
    world.composite.declared = world.composite.declared.adopting(&as_original);
    assert_eq!(world.pass(timestamp(0)), ["adopt a", "delete a"]);
    let mut world = tempted(&[], &json!({}));
    world.composite.declared = world.composite.declared.adopting(&["others".to_owned()]);
    assert!(world.pass(timestamp(0)).is_empty());
}

#[test]
fn objects_that_hand_out_rights_or_belong_to_oz_are_never_adopted() {
    for (group, plural, metadata) in [
        ("rbac.authorization.k8s.io", "roles", json!({})),
        ("rbac.authorization.k8s.io", "rolebindings", json!({})),
        ("", "secrets", json!({})),
        ("networking.k8s.io", "networkpolicies", json!({})),
        ("paddock.dev", "harnessruns", json!({})),
        ("paddock.dev", "workspaces", json!({})),
        ("example.com", "transientrolebindings", json!({})),
        (
            "",
            "configmaps",
            json!({"labels": {"crew": "one", "oz.wizardofoz.co/owner-uid": "x"}}),
        ),
        (
            "",
            "configmaps",
            json!({"labels": {"crew": "one", "app.kubernetes.io/managed-by": "oz"}}),
        ),
    ] {
        let mut metadata = metadata;
        metadata["annotations"] = json!({"oz.wizardofoz.co/adoptable-by": "parent"});
        let mut world = tempted(&["alice"], &metadata);
        world.composite.declared = world.composite.declared.adopting(&["fleets".to_owned()]);
        let resource = &mut world.live[0].resource;
        resource.group = group.to_owned();
        resource.plural = plural.to_owned();
        assert!(
            world.pass(timestamp(0)).is_empty(),
            "{plural}.{group}: {metadata}"
        );
    }
}

/// A selector may match every object.
#[test]
fn pass_reviews_limited_number_of_selected_objects() {
    let mut world = tempted(&["alice"], &json!({}));
    for name in 0..100 {
        let name = format!("b{name}");
        world.stray(
            json!({"name": name, "namespace": "dev", "uid": name, "labels": {"crew": "one"}}),
        );
    }
    assert_eq!(asked(&world, timestamp(0)).len(), 32);
}

#[test]
fn nothing_is_adopted_before_the_parent_is_known_to_live() {
    let mut world = selecting();
    world.stray(json!({"name": "a", "namespace": "dev", "uid": "a", "labels": {"crew": "one"}}));
    assert_eq!(
        world.verdict(timestamp(0)).question(),
        Some(Question::Alive)
    );
    // A parent that is being deleted, or that cannot be confirmed to exist, adopts nothing.
    for alive in [Ok(false), Err(Failure::transient("Unreachable", "no"))] {
        let mut world = tempted(
            &[],
            &json!({"labels": {"crew": "one", "controller-uid": "parent"}}),
        );
        world.facts.alive = Some(alive);
        assert!(world.pass(timestamp(0)).is_empty());
    }
}

#[test]
fn unselected_child_is_disowned_and_foreign_child_is_left() {
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
    assert_eq!(world.pass(timestamp(0)), ["disown mine"]);
}

#[test]
fn a_parent_without_a_selector_says_so() {
    for (spec, said) in [
        (json!({}), "has no spec.selector"),
        (json!({"selector": {}}), "selects everything"),
        (
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
            "not a label selector",
        ),
        (json!({"selector": 7}), "not a label selector"),
    ] {
        let mut world = selecting();
        world.parent.data["spec"] = spec;
        let obstacle = world.plan(timestamp(0)).obstacle.unwrap();
        assert!(obstacle.message.contains(said), "{obstacle}");
    }
}

#[test]
fn pass_over_a_parent_without_identity_fails_and_adopts_nothing() {
    let mut world = selecting();
    world.stray(json!({"name": "a", "namespace": "dev", "uid": "a", "labels": {"crew": "one"}}));
    world.facts.alive = Some(Ok(true));
    world.answers(&json!({"children": []}));
    world.parent.metadata.uid = None;
    let plan = world.plan(timestamp(0));
    let failure = plan.obstacle.unwrap();
    assert!(failure.message.contains("metadata.uid"), "{failure}");
    assert!(plan.stages.is_empty(), "{:?}", plan.stages);
}
