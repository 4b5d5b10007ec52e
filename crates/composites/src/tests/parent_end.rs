//! Parents that are deleted at the end of their window, with and without a policy.

use jiff::{SignedDuration, Timestamp};
use oz_api::composite::Method;
use oz_core::controller::{Controller, Failure, Step};
use oz_core::kinds;
use serde_json::{Value, json};

use super::rego::{declared, refused, rego, text};
use super::rights::{self, found, obstacle, stamp};
use super::supervising::composites;
use super::world::*;
use crate::guard::{self, Report};
use crate::rights::Found;
use crate::supervise::{Mode, has_ends, needs};
use crate::{Declared, Source};

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);
const DELETED: &str = "DeleteSelf";

/// Returns a world with a parent that is deleted at this instant, after its child.
fn ending(until: Value) -> World {
    let mut world = World::new(Method::InPlace);
    world.composite.declared = declared(|rego| {
        rego["spec"]["window"] = json!({"until": ".spec.until", "then": "Delete"});
    });
    world.composite.declared.resync = None;
    world.parent.data["spec"] = json!({"until": until});
    world.answers(&json!({"children": [map("a", "x")]}));
    world
}

/// Returns a world with a composite that has no policy, and a parent with these annotations.
fn bare(annotations: Value) -> World {
    let mut world = World::new(Method::InPlace);
    world.composite.declared = declared(|rego| {
        let spec = rego["spec"].as_object_mut().unwrap();
        spec.remove("policy");
        spec.remove("children");
        let window = json!({"until": ".metadata.annotations.until", "then": "Delete"});
        spec.insert("window".to_owned(), window);
    });
    world.composite.family.children.clear();
    world.parent.metadata.annotations = serde_json::from_value(annotations).unwrap();
    world
}

#[test]
fn parent_is_deleted_at_its_end_after_its_children() {
    let mut world = ending(text(timestamp(20)));
    assert_eq!(world.pass(timestamp(1)), ["hold", "create a"]);
    assert_eq!(world.plan(timestamp(2)).wake, Some(timestamp(20)));
    assert!(world.pass(timestamp(20) - NANOSECOND).is_empty());
    assert_eq!(world.pass(timestamp(20)), ["delete a"]);
    assert_eq!(world.pass(timestamp(20)), [DELETED]);
    // Its finalizer is removed once it is being deleted.
    world.parent.metadata.deletion_timestamp = Some(time());
    assert_eq!(world.pass(timestamp(21)), ["release"]);
}

#[test]
fn parent_is_deleted_though_its_policy_fails_or_does_not_run() {
    let mut world = ending(text(timestamp(20)));
    world.facts.called = Some(Err(Failure::transient("PolicyFailed", "no").into()));
    assert_eq!(world.plan(timestamp(1)).wake, Some(timestamp(20)));
    for mode in [Mode::Run, Mode::Guard, Mode::Ends] {
        world.composite.mode = mode;
        assert_eq!(world.pass(timestamp(20)), [DELETED], "{mode:?}");
    }
    world.facts = Default::default();
    world.composite.mode = Mode::Ends;
    assert_eq!(world.plan(timestamp(1)).wake, Some(timestamp(20)));
    let until = world.composite.lasts_until(Some(&world.parent), &[]);
    assert_eq!(until, Some(timestamp(20)));
}

#[test]
fn parent_of_deleted_or_dry_composite_or_with_other_labels_is_kept() {
    let mut world = ending(text(timestamp(20)));
    world.composite.mode = Mode::Leave;
    assert!(world.pass(timestamp(21)).is_empty());
    world.composite.mode = Mode::DryRun;
    let plan = world.plan(timestamp(21));
    let steps: Vec<&Step> = plan.steps().collect();
    let [Step::Effect(effect)] = steps[..] else {
        panic!("{plan:?}");
    };
    assert_eq!(effect.port, guard::PORT);
    let report: Report = serde_json::from_value(effect.payload.clone()).unwrap();
    assert_eq!(report.delete, ["Fleet dev/one"]);
    world.composite.mode = Mode::Run;
    world.composite.declared.selector = [("crew".to_owned(), "one".to_owned())]
        .into_iter()
        .collect();
    assert!(world.pass(timestamp(21)).is_empty());
}

#[test]
fn parent_without_valid_end_is_kept_and_its_window_is_reported() {
    for (until, said) in [
        (Value::Null, "has no .spec.until"),
        (json!("later"), "which is not an instant"),
    ] {
        let (reason, message) = obstacle(&ending(until), timestamp(9));
        assert_eq!(reason, "WindowInvalid");
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn parent_without_policy_only_ends() {
    let mut world = bare(json!({"until": timestamp(20).to_string()}));
    world.facts = Default::default();
    let plan = world.plan(timestamp(1));
    assert_eq!((plan.steps().count(), plan.wake), (0, Some(timestamp(20))));
    assert_eq!(world.decide(timestamp(1)).state.status, None);
    assert_eq!(world.pass(timestamp(20)), [DELETED]);
    // A parent without an end lasts, and one with another text is reported.
    let plan = bare(Value::Null).plan(timestamp(1));
    assert_eq!(
        (plan.steps().count(), plan.wake, plan.obstacle),
        (0, None, None)
    );
    let (reason, _) = obstacle(&bare(json!({"until": "soon"})), timestamp(1));
    assert_eq!(reason, "WindowInvalid");
}

#[test]
fn each_author_of_privileged_parent_must_be_allowed_to_delete_it() {
    let lasting = || {
        let mut world = bare(json!({"until": timestamp(20).to_string()}));
        world.composite.bindable = rights::world(Method::InPlace).composite.bindable;
        let resource = &mut world.composite.family.parent.resource;
        resource.group = "networking.k8s.io".to_owned();
        resource.api_version = "networking.k8s.io/v1".to_owned();
        resource.kind = "NetworkPolicy".to_owned();
        resource.plural = "networkpolicies".to_owned();
        world
    };
    let (reason, message) = obstacle(&lasting(), timestamp(20));
    assert_eq!(reason, "NotStamped", "{message}");
    assert!(
        message.contains("NetworkPolicy dev/one is not deleted"),
        "{message}"
    );

    let mut world = lasting();
    world.parent.metadata.creation_timestamp = Some(time());
    stamp(&mut world, &["alice", "bob"], "");
    let wants = rights::asked(&world, timestamp(20));
    let reviews: Vec<_> = wants[0].reviews().map(|(_, review)| review.spec).collect();
    assert_eq!(reviews.len(), 2);
    let asked = reviews[1].resource_attributes.as_ref().unwrap();
    assert_eq!(asked.verb.as_deref(), Some("delete"));
    assert_eq!(asked.name.as_deref(), Some("one"));
    let lacks = |author: Option<&str>| Found {
        lacks: Ok(author.map(ToOwned::to_owned)),
        rules: Ok(None),
    };
    found(&mut world, timestamp(20), &lacks(Some("bob")));
    let (reason, message) = obstacle(&world, timestamp(20));
    assert_eq!(reason, "MayNotModify");
    assert!(
        message.contains("bob, an author of the parent"),
        "{message}"
    );
    world.facts.rights.clear();
    found(&mut world, timestamp(20), &lacks(None));
    assert_eq!(world.pass(timestamp(20)), [DELETED]);
}

#[test]
fn object_that_oz_created_is_kept() {
    let mut world = bare(json!({"until": timestamp(20).to_string()}));
    let labels = [("app.kubernetes.io/managed-by".to_owned(), "oz".to_owned())];
    world.parent.metadata.labels = Some(labels.into());
    world.composite.bindable = rights::world(Method::InPlace).composite.bindable;
    let (reason, message) = obstacle(&world, timestamp(20));
    assert_eq!(reason, "Reserved");
    assert!(message.contains("was created by oz"), "{message}");
}

#[test]
fn kinds_of_oz_are_refused_as_parents_that_are_deleted() {
    for entry in kinds::all() {
        let resource = entry.resource;
        let object = rego(|rego| {
            rego["spec"]["parent"] =
                json!({"apiVersion": resource.api_version, "resource": resource.plural});
            rego["spec"]["window"] = json!({"until": ".spec.until", "then": "Delete"});
        });
        assert!(Declared::of_rego(&object).is_err(), "{}", resource.plural);
    }
}

#[test]
fn policy_is_required_unless_parents_are_deleted() {
    let missing = "spec.policy: is missing: only a controller with window.then: Delete";
    let without = |window: Value| {
        let object = rego(|rego| {
            rego["spec"].as_object_mut().unwrap().remove("policy");
            rego["spec"]["window"] = window;
        });
        let violations = Declared::of_rego(&object).unwrap_err();
        oz_core::validate::Violation::list(&violations)
    };
    let said = without(json!({"until": ".spec.until"}));
    assert!(said.contains(missing), "{said}");
    let said = without(json!({"until": ".spec.until", "then": "Delete"}));
    assert!(
        said.contains("spec.children: is set without spec.policy"),
        "{said}"
    );
    refused(&[(
        "/spec/window",
        json!({"until": ".metadata.annotations.a.b"}),
        "spec.window.until: is in metadata or status",
    )]);
}

#[test]
fn account_needs_the_right_to_delete_parents() {
    let rights = |declared: &Declared| -> Vec<String> {
        let needs = needs(declared, has_ends(declared, declared.has_function()));
        let rights = needs.into_iter().map(|need| {
            let parts = [need.verb, need.resource, need.subresource];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        });
        rights.collect()
    };
    let only = rights(&bare(Value::Null).composite.declared);
    let expected = ["get fleets", "list fleets", "watch fleets", "delete fleets"];
    assert_eq!(only, expected);
    let both = rights(&ending(Value::Null).composite.declared);
    assert!(both.contains(&"delete fleets".to_owned()), "{both:?}");
    let keeps = rights(&declared(|_| {}));
    assert!(!keeps.contains(&"delete fleets".to_owned()), "{keeps:?}");
}

#[test]
fn invalid_controller_deletes_no_parent() {
    let object = rego(|rego| {
        let near = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
        rego["spec"]["parent"]["labelSelector"] = near;
        rego["spec"]["window"] = json!({"until": ".spec.until", "then": "Delete"});
    });
    let declared = object.readable().unwrap();
    assert!(declared.window.is_some() && !declared.deletes_parents());
    let valid = rego(|rego| {
        rego["spec"]["window"] = json!({"until": ".spec.until", "then": "Delete"});
    });
    assert!(valid.readable().unwrap().deletes_parents());
    let asked = composites().decide(timestamp(0), &valid, &None, &[]);
    assert!(asked.question().is_some(), "it is surveyed");
}

#[test]
fn earlier_end_of_parent_counts_at_once() {
    let mut world = ending(text(timestamp(100)));
    assert_eq!(world.pass(timestamp(1)), ["hold", "create a"]);
    let soon: Timestamp = timestamp(5);
    world.parent.data["spec"]["until"] = text(soon);
    assert_eq!(world.plan(timestamp(2)).wake, Some(soon));
    assert_eq!(world.pass(soon), ["delete a"]);
    assert_eq!(world.pass(soon), [DELETED]);
}
