//! Several policies of one composite, and the tally before one of them may delete children.

use std::collections::{BTreeMap, BTreeSet};

use oz_api::composite::{CompositeController, Method};
use oz_core::controller::Step;
use serde_json::json;

use super::world::*;
use crate::declared::Declared;
use crate::guard::{self, Report, Tally};
use crate::supervise::{Mode, PolicyFound};

#[test]
fn the_policies_of_both_hooks_are_followed() {
    let both = controller(|composite| {
        let hooks = &mut composite["spec"]["hooks"];
        hooks["sync"]["webhook"]["url"] = json!("http://opa.first/v0/data/fleets");
        hooks["finalize"] = json!({"webhook": {"url": "http://opa.second/v0/data/ends"}});
    });
    let namespaces = ["first".to_owned(), "second".to_owned()];
    let declared = Declared::from_composite(&both)
        .unwrap()
        .with_policies(&namespaces);
    let found: Vec<_> = declared
        .policies()
        .map(|one| one.modules.namespace())
        .collect();
    assert_eq!(found, [Some("first"), Some("second")]);
}

#[test]
fn policy_in_process_deletes_ten_children_at_most_by_default() {
    let url = |url: &str| {
        let url = json!(url);
        controller(|composite| composite["spec"]["hooks"]["sync"]["webhook"]["url"] = url)
    };
    let most = |composite: &CompositeController, limit: Option<usize>| {
        let mut declared = Declared::from_composite(composite).unwrap();
        declared.most_deletions = limit;
        declared.with_policies(&["first".to_owned()]).most_deletions
    };
    let policy = url("http://opa.first/v0/data/fleets");
    assert_eq!(most(&policy, None), Some(10));
    assert_eq!(most(&policy, Some(0)), Some(0));
    assert_eq!(most(&policy, Some(50)), Some(50));
    assert_eq!(most(&url("http://hooks.second/sync"), None), None);
}

#[test]
fn several_policies_are_another_one_when_any_of_them_is() {
    let one = |digest: &str, language: &str| PolicyFound {
        digest: digest.to_owned(),
        language: language.to_owned(),
    };
    let together = |found: &[PolicyFound]| PolicyFound::together(found).unwrap();
    assert_eq!(PolicyFound::together(&[]), None);
    assert_eq!(together(&[one("a", "v1")]), one("a", "v1"));
    // Two functions are in one bundle.
    assert_eq!(together(&[one("a", "v1"), one("a", "v1")]), one("a", "v1"));
    let first = together(&[one("a", "v1"), one("b", "v0")]);
    assert_eq!(first.language, "v0, v1");
    let changed = [
        together(&[one("a", "v1"), one("c", "v0")]),
        together(&[one("c", "v1"), one("b", "v0")]),
        together(&[one("b", "v1"), one("a", "v0")]),
    ];
    for other in changed {
        assert_ne!(first.digest, other.digest);
    }
}

#[test]
fn parent_report_that_misses_child_does_not_count() {
    let report = Report {
        parent: "dev/one".to_owned(),
        seen: BTreeSet::from(["known".to_owned()]),
        ..Report::default()
    };
    let reports = BTreeMap::from([("one".to_owned(), report)]);
    let tally = |children: &[(&'static str, &'static str)]| {
        let told = Tally::from_reports(None, ["one"], &reports);
        told.checked(children.iter().copied(), &reports)
            .is_within(1_000)
    };
    // Children of other parents do not count.
    assert!(tally(&[("one", "known"), ("another", "late")]));
    assert!(!tally(&[("one", "known"), ("one", "late")]));
}

#[test]
fn guarded_parent_reports_known_children() {
    let mut world = World::new(Method::InPlace);
    world.answers(&json!({"children": [map("a", "x"), map("b", "x")]}));
    world.pass(timestamp(0));
    world.stray(json!({"name": "stray", "namespace": "dev", "uid": "s"}));
    world.composite.mode = Mode::Guard;
    world.answers(&json!({"children": [map("a", "x")]}));
    let plan = world.plan(timestamp(1));
    let told = plan.steps().find_map(|step| match step {
        Step::Effect(effect) if effect.port == guard::PORT => Some(effect.payload.clone()),
        _ => None,
    });
    let report: Report = serde_json::from_value(told.unwrap()).unwrap();
    assert_eq!(report.delete.len(), 1);
    let uid = |name: &str| {
        let child = world.live.iter();
        let mut child = child.filter(|one| one.object.metadata.name.as_deref() == Some(name));
        child.next().unwrap().object.metadata.uid.clone().unwrap()
    };
    assert_eq!(report.seen, BTreeSet::from([uid("a"), uid("b")]));
}
