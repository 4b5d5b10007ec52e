//! The stages that know an owner only, with the owner of a controller that is no composite.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::DynamicObject;
use oz_api::composite::Method;
use oz_core::controller::{Live, Step};
use oz_core::lifecycle::seal::Keys;
use serde_json::{Value, json};

use super::apply::Application;
use super::claim::{Claimed, claim};
use super::evaluate::evaluate;
use super::facts::{Facts, Question};
use crate::declared::{Family, KindName, Placed};
use crate::function::Called;
use crate::guard::Report;
use crate::mode::Mode;
use crate::owner::{Owner, Ownership, Selection};
use crate::protocol::Answer;
use crate::window::Window;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

/// A Namespace with ConfigMaps until the instant in its field.
struct World {
    family: Family,
    window: Window,
    keys: Keys,
    parent: DynamicObject,
}

impl World {
    fn new() -> Self {
        let placed = |kind: &str, plural: &str, cluster_scoped| {
            let name = KindName {
                api_version: "v1".to_owned(),
                resource: plural.to_owned(),
            };
            Placed {
                resource: name.api_resource(kind),
                cluster_scoped,
            }
        };
        let child = placed("ConfigMap", "configmaps", false);
        Self {
            family: Family {
                parent: placed("Namespace", "namespaces", true),
                children: vec![(child, Method::InPlace)],
            },
            window: Window::new(None, ".spec.until"),
            keys: Keys::with_every_owner([[7; 32]]),
            parent: object(json!({
                "metadata": {"name": "dev", "uid": "owner"},
                "spec": {"until": at(10).to_string()},
            })),
        }
    }

    fn owner(&self) -> Owner<'_> {
        let rules = Ownership {
            family: &self.family,
            selection: Selection::Generated,
            finalizer: "example.org/maps",
            finalizes: false,
            window: Some(&self.window),
            most_children: 2,
            keys: &self.keys,
            bindable: None,
        };
        Owner::new(&self.parent, rules, true).unwrap()
    }

    /// Returns a ConfigMap with the label of this owner, and with this controller.
    fn map(&self, name: &str, label: &str, controller: Option<&str>) -> Live {
        let mut metadata = json!({
            "name": name, "namespace": "dev", "uid": name, "labels": {"controller-uid": label},
        });
        if let Some(uid) = controller {
            metadata["ownerReferences"] = json!([
                {"apiVersion": "v1", "kind": "Namespace", "name": "dev", "uid": uid, "controller": true},
            ]);
        }
        Live {
            resource: self.family.children[0].0.resource.clone(),
            object: object(json!({"metadata": metadata})),
        }
    }
}

/// Returns a response with these ConfigMaps.
fn called(names: &[&str]) -> Called {
    let children = names.iter().map(|name| {
        let metadata = json!({"name": name, "namespace": "dev"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    });
    let children: Vec<Value> = children.collect();
    Called {
        answer: Answer::read(&json!({"children": children}), true).unwrap(),
        ahead: Vec::new(),
        look_again: None,
        policy: None,
    }
}

/// Returns the steps with which an owner applies a response.
fn applied(owner: &Owner<'_>, mode: Mode, live: &[Live], called: &Called) -> Vec<String> {
    let facts = Facts::default();
    let terms = owner.terms().unwrap();
    let claimed = claim(owner, &terms.selector, &facts, live).unwrap();
    let have = claimed.by_key();
    let desired = evaluate(at(0), owner, &terms, called, &have).unwrap();
    let application = Application {
        now: at(0),
        owner,
        mode,
        claimed: &claimed,
        have: &have,
        desired: &desired,
        facts: &facts,
    };
    let plan = application.plan(false, Report::default()).unwrap();
    let steps = plan.steps().map(|step| match step {
        Step::Hold(finalizer) => format!("hold {finalizer}"),
        Step::Apply(child) => format!("apply {}", child.key()),
        Step::Delete(child) => format!("delete {}", child.key()),
        Step::Effect(effect) => format!("report {}", effect.payload["delete"]),
        other => format!("{other:?}"),
    });
    steps.collect()
}

#[test]
fn objects_are_claimed_by_controller_and_label() {
    let mut world = World::new();
    let live = [
        world.map("own", "owner", Some("owner")),
        world.map("unselected", "another", Some("owner")),
        world.map("free", "owner", None),
        world.map("foreign", "owner", Some("another")),
    ];
    let mut facts = Facts::default();
    let claimed = |world: &World, facts: &Facts| {
        let owner = world.owner();
        claim(&owner, &owner.terms().unwrap().selector, facts, &live)
    };
    assert_eq!(claimed(&world, &facts), Err(Question::Alive));
    facts.alive = Some(Ok(true));
    let [own, unselected, free, _] = live.clone();
    let mut expected = Claimed {
        own: vec![own],
        adoptable: vec![free],
        released: vec![unselected],
    };
    let found = claimed(&world, &facts).unwrap();
    assert_eq!(found, expected);
    assert_eq!(found.children().count(), 2);
    // An owner that is being deleted adopts nothing, without a question.
    world.parent.metadata.deletion_timestamp = Some(Time(at(0)));
    expected.adoptable.clear();
    let found = claimed(&world, &Facts::default());
    assert_eq!(found, Ok(expected));
}

#[test]
fn desired_children_expire_with_the_window_of_their_owner() {
    let world = World::new();
    let owner = world.owner();
    let terms = owner.terms().unwrap();
    let none = BTreeMap::new();
    let evaluated =
        |seconds: i64, names: &[&str]| evaluate(at(seconds), &owner, &terms, &called(names), &none);
    let desired = evaluated(0, &["one"]).unwrap();
    assert_eq!(desired.len(), 1);
    assert_eq!(desired[0].until, Some(at(10)));
    assert_eq!(
        desired[0].child.object.metadata.owner_references,
        Some(vec![owner.reference()])
    );
    assert!(evaluated(10, &["one"]).unwrap().is_empty());
    let error = evaluated(0, &["one", "two", "three"]).unwrap_err();
    assert_eq!(error.to_string(), "has 3 children, of at most 2");
}

#[test]
fn deletion_is_applied_or_reported_by_mode() {
    let world = World::new();
    let owner = world.owner();
    let live = [world.map("old", "owner", Some("owner"))];
    let called = called(&["new"]);
    let steps = |mode| applied(&owner, mode, &live, &called);
    let hold = "hold example.org/maps";
    let (apply, delete) = ("apply ConfigMap dev/new", "delete ConfigMap dev/old");
    let report = r#"report ["ConfigMap dev/old"]"#;
    assert_eq!(steps(Mode::Run), [hold, delete, apply]);
    assert_eq!(steps(Mode::Guard), [report, hold, apply]);
    assert_eq!(steps(Mode::DryRun), [hold, report]);
}

#[test]
fn owner_is_held_only_for_expiring_children() {
    let world = World::new();
    let mut owner = world.owner();
    owner.rules.window = None;
    let steps = applied(&owner, Mode::Run, &[], &called(&["new"]));
    assert_eq!(steps, ["apply ConfigMap dev/new"]);
}
