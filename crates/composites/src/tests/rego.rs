//! RegoControllers: the meaning of each field, the rejected values, and the changes that are withheld from the policy.

use jiff::{SignedDuration, Timestamp};
use oz_api::composite::Method;
use oz_api::rego::{Language, RegoController};
use oz_core::controller::{Controller, Failure, Step};
use oz_core::validate::Violation;
use serde_json::{Value, json};

use super::supervising::{composites, survey};
use super::world::*;
use crate::declared::{Declared, Modules};
use crate::guard::{self, Report, Tally};
use crate::supervise::{Mode, PolicyFound, Run, Survey};

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

pub(super) fn rego(change: impl FnOnce(&mut Value)) -> RegoController {
    let mut value = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "RegoController",
        "metadata": {"name": "fleets", "uid": "rego", "generation": 1},
        "spec": {
            "parent": {"apiVersion": "test.example.org/v1", "resource": "fleets"},
            "children": [{"apiVersion": "v1", "resource": "configmaps"}],
            "policy": {"inline": "package controller"},
            "runAs": {"namespace": "oz-system", "serviceAccount": "oz-composites"},
        },
    });
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

pub(super) fn declared(change: impl FnOnce(&mut Value)) -> Declared {
    let declared = Declared::of_rego(&rego(change));
    declared.unwrap_or_else(|violations| panic!("{}", Violation::list(&violations)))
}

#[test]
fn rego_controller_uses_defaults_for_omitted_fields() {
    let declared = declared(|_| {});
    let policy = declared.policies().next().unwrap();
    assert_eq!(
        policy.modules,
        Modules::Inline("package controller".to_owned())
    );
    assert_eq!(
        (policy.path.as_str(), policy.language, policy.strict),
        ("controller", None, false)
    );
    assert_eq!(policy.evaluation.unwrap().as_millis(), 100);
    assert_eq!(declared.children[0].1, Method::InPlace);
    assert_eq!(declared.resync, Some(SignedDuration::from_mins(5)));
    assert_eq!(
        (declared.most_children, declared.most_deletions),
        (50, Some(10))
    );
    assert!(declared.generate_selector && !declared.dry_run && declared.window.is_none());
    assert_eq!(declared.finalizer, "oz.wizardofoz.co/regocontroller-fleets");
    assert_eq!(
        declared.run_as.unwrap().to_string(),
        "oz-system/oz-composites"
    );
}

#[test]
fn each_field_is_heard() {
    let declared = declared(|rego| {
        let spec = &mut rego["spec"];
        spec["parent"]["labelSelector"] = json!({"matchLabels": {"crew": "one"}});
        spec["children"] = json!([
            {"apiVersion": "v1", "resource": "configmaps", "update": "Recreate"},
            {"apiVersion": "apps/v1", "resource": "deployments", "update": "OnDelete"},
        ]);
        spec["policy"] = json!({
            "configMapRef": {"namespace": "policies", "name": "fleets", "key": "fleets.rego"},
            "package": "fleets.main", "language": "v0", "strict": true,
        });
        spec["resync"] = json!("90s");
        spec["limits"] = json!({"evaluation": "7ms", "children": 3, "deletions": 0});
        spec["mode"] = json!("DryRun");
    });
    let policy = declared.policies().next().unwrap();
    assert_eq!(policy.modules.namespace(), Some("policies"));
    assert_eq!((policy.path.as_str(), policy.strict), ("fleets.main", true));
    assert_eq!(policy.language, Some(Language::V0));
    assert_eq!(policy.evaluation.unwrap().as_millis(), 7);
    let methods: Vec<Method> = declared
        .children
        .iter()
        .map(|(_, method)| *method)
        .collect();
    assert_eq!(methods, [Method::Recreate, Method::OnDelete]);
    assert_eq!(declared.resync, Some(SignedDuration::from_secs(90)));
    assert_eq!(
        (declared.most_children, declared.most_deletions),
        (3, Some(0))
    );
    assert!(declared.dry_run);
    let crew = |name: &str| [("crew".to_owned(), name.to_owned())].into();
    assert!(declared.selects(&crew("one")) && !declared.selects(&crew("two")));
}

/// Checks that each of these values is rejected, with the name of its field.
pub(super) fn refused(table: &[(&str, Value, &str)]) {
    for (pointer, value, said) in table {
        let object = rego(|rego| {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            rego.pointer_mut(parent).unwrap()[field] = value.clone();
        });
        let list = Violation::list(&Declared::of_rego(&object).unwrap_err());
        assert!(list.contains(said), "{pointer} {value}: {list}");
    }
}

#[test]
fn kinds_that_are_none_or_are_reserved_are_refused() {
    let oz = json!("crds.wizardofoz.co/v1alpha1");
    let rbac = json!("rbac.authorization.k8s.io/v1");
    let near = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    let one = json!({"apiVersion": "v1", "resource": "a"});
    refused(&[
        (
            "/metadata/name",
            json!("x".repeat(49)),
            "metadata.name: has more than 48",
        ),
        (
            "/spec/parent/resource",
            json!(""),
            "spec.parent: names no kind",
        ),
        (
            "/spec/parent/apiVersion",
            oz.clone(),
            "spec.parent: fleets.crds.wizardofoz.co is reserved",
        ),
        (
            "/spec/parent/labelSelector",
            near,
            "spec.parent.labelSelector: is not a label selector",
        ),
        ("/spec/children", json!([]), "spec.children: has 0 kinds"),
        (
            "/spec/children/0/apiVersion",
            oz,
            "spec.children[0]: configmaps.crds",
        ),
        (
            "/spec/parent/apiVersion",
            rbac,
            "is reserved: it can be a child, but not a parent",
        ),
        (
            "/spec/children",
            json!([one, one]),
            "spec.children[1]: a exists twice",
        ),
        (
            "/spec/related",
            json!([{"apiVersion": "v1", "resource": "a/b"}]),
            "spec.related[0]: names no kind",
        ),
        (
            "/spec/runAs/namespace",
            json!(""),
            "spec.runAs: names no service account",
        ),
    ]);
}

#[test]
fn a_policy_that_is_nowhere_is_refused() {
    let key = json!({"namespace": "policies", "name": "fleets", "key": "fleets.rego"});
    let both = json!({"inline": "package a", "configMapRef": key});
    let one = "spec.policy: must have inline or configMapRef";
    let path = "spec.policy.package: is not a path";
    refused(&[
        ("/spec/policy", json!({}), one),
        ("/spec/policy", both, one),
        ("/spec/policy/package", json!("data.a-b"), path),
        ("/spec/policy/package", json!(""), path),
    ]);
}

#[test]
fn a_window_of_fields_that_its_author_does_not_write_is_refused() {
    let window = |from: &str, until: &str| json!({"from": from, "until": until});
    let path = "spec.window.until: is not a path";
    let status = "spec.window.until: is in metadata or status, which the author of the parent does not write";
    let metadata =
        "spec.window.from: is in metadata or status, which the author of the parent does not write";
    let same = "spec.window.until: begins and ends with the same field";
    refused(&[
        ("/spec/window", json!({"until": "spec.validUntil"}), path),
        ("/spec/window", json!({"until": ".spec..validUntil"}), path),
        ("/spec/window", json!({"until": ".status.until"}), status),
        (
            "/spec/window",
            window(".metadata.name", ".spec.u"),
            metadata,
        ),
        ("/spec/window", window(".spec.u", ".spec.u"), same),
    ]);
}

#[test]
fn lengths_and_numbers_out_of_bounds_are_refused() {
    let evaluation = "spec.limits.evaluation: is not from 1ms to 1s";
    let children = "spec.limits.children: is not from 1 to 1000";
    let deletions = "spec.limits.deletions: is more than 100000";
    refused(&[
        ("/spec/resync", json!("soon"), "spec.resync"),
        ("/spec/resync", json!("-5s"), "spec.resync: is negative"),
        (
            "/spec/resync",
            json!("999ms"),
            "spec.resync: is less than 1s",
        ),
        ("/spec/limits", json!({"evaluation": "2s"}), evaluation),
        ("/spec/limits", json!({"evaluation": "0"}), evaluation),
        ("/spec/limits", json!({"children": 0}), children),
        ("/spec/limits", json!({"children": 1001}), children),
        ("/spec/limits", json!({"deletions": 100_001}), deletions),
    ]);
}

/// Returns a world with a parent that defines the window of its children.
fn windowed(from: Value, until: Value) -> World {
    let mut world = World::new(Method::InPlace);
    world.composite.declared = declared(|rego| {
        rego["spec"]["window"] = json!({"from": ".spec.from", "until": ".spec.until"});
    });
    world.composite.declared.resync = None;
    world.parent.data["spec"] = json!({"from": from, "until": until});
    world.answers(&json!({"children": [map("a", "x")]}));
    world
}

pub(super) fn text(at: Timestamp) -> Value {
    json!(at.to_string())
}

#[test]
fn rego_window_opens_and_closes_to_nanosecond_despite_policy() {
    let mut world = windowed(text(timestamp(10)), text(timestamp(20)));
    assert!(world.pass(timestamp(10) - NANOSECOND).is_empty());
    assert_eq!(world.plan(timestamp(9)).wake, Some(timestamp(10)));
    assert_eq!(world.pass(timestamp(10)), ["hold", "create a"]);
    assert_eq!(world.plan(timestamp(11)).wake, Some(timestamp(20)));
    world.facts.called = Some(Err(Failure::transient("PolicyInvalid", "no").into()));
    assert!(world.pass(timestamp(20) - NANOSECOND).is_empty());
    // The expiry that is written on the child applies, even if a user changes the parent.
    world.parent.data["spec"]["until"] = text(timestamp(100));
    assert_eq!(world.pass(timestamp(20)), ["delete a"]);
    world.answers(&json!({"children": [map("a", "x")]}));
    world.parent.data["spec"]["until"] = text(timestamp(20));
    assert!(world.pass(timestamp(21)).iter().all(|step| step == "hold"));
}

#[test]
fn an_end_that_comes_earlier_holds_though_the_policy_is_broken() {
    let mut world = windowed(Value::Null, text(timestamp(20)));
    assert_eq!(world.pass(timestamp(1)), ["hold", "create a"]);
    world.facts.called = Some(Err(Failure::transient("PolicyInvalid", "no").into()));
    world.parent.data["spec"]["until"] = text(timestamp(5));
    assert_eq!(world.plan(timestamp(2)).wake, Some(timestamp(5)));
    assert_eq!(world.pass(timestamp(5)), ["delete a"]);
    // A child that another client created is not touched.
    world.stray(json!({"name": "b", "namespace": "dev", "uid": "b", "ownerReferences": [
        {"apiVersion": "test.example.org/v1", "kind": "Fleet", "name": "one", "uid": "parent", "controller": true},
    ]}));
    assert!(world.pass(timestamp(6)).is_empty());
}

#[test]
fn a_parent_that_does_not_say_until_when_gets_no_children() {
    for (from, until, said) in [
        (Value::Null, Value::Null, "has no .spec.until"),
        (
            Value::Null,
            json!("later"),
            "\"later\" as .spec.until, which is not an instant",
        ),
        (
            json!(7),
            text(timestamp(9)),
            "a .spec.from that is not a text",
        ),
    ] {
        let world = windowed(from, until);
        let plan = world.plan(timestamp(1));
        let failure = plan.obstacle.clone().unwrap();
        assert_eq!(failure.reason, "WindowInvalid");
        assert!(failure.message.contains(said), "{failure}");
        assert_eq!(plan.steps().count(), 0);
    }
}

#[test]
fn more_children_than_allowed_are_none() {
    let mut world = windowed(Value::Null, text(timestamp(20)));
    world.composite.declared.most_children = 1;
    world.answers(&json!({"children": [map("a", "x"), map("b", "x")]}));
    let plan = world.plan(timestamp(1));
    let failure = plan.obstacle.clone().unwrap();
    assert!(
        failure.message.contains("has 2 children, of at most 1"),
        "{failure}"
    );
    assert_eq!(plan.steps().count(), 0);
}

fn guard_report(world: &World, now: Timestamp) -> Report {
    let plan = world.plan(now);
    let mut steps = plan.steps();
    let told = steps.find_map(|step| match step {
        Step::Effect(effect) if effect.port == guard::PORT => Some(effect.payload.clone()),
        _ => None,
    });
    serde_json::from_value(told.expect("something is told")).unwrap()
}

/// Returns a world with a child that stays, one that changes, one that the function no longer returns, and a new one.
fn differing() -> World {
    let mut world = World::new(Method::InPlace);
    world.composite.declared = declared(|_| {});
    let before = json!({"children": [map("stays", "x"), map("changes", "x"), map("goes", "x")]});
    world.answers(&before);
    world.pass(timestamp(0));
    assert_eq!(world.live.len(), 3);
    let after = json!({"children": [map("stays", "x"), map("changes", "y"), map("new", "x")], "status": {"a": 1}});
    world.answers(&after);
    world
}

#[test]
fn dry_run_reports_and_writes_nothing() {
    let mut world = differing();
    world.composite.mode = Mode::DryRun;
    let report = guard_report(&world, timestamp(1));
    assert_eq!(report.parent, "dev/one");
    assert_eq!(report.composite.as_deref(), Some("rego"));
    assert_eq!(report.create, ["ConfigMap dev/new"]);
    assert_eq!(report.change, ["ConfigMap dev/changes"]);
    assert_eq!(report.delete, ["ConfigMap dev/goes"]);
    let decision = world.decide(timestamp(1));
    assert!(
        decision
            .plan
            .steps()
            .all(|step| matches!(step, Step::Effect(_)))
    );
    assert_eq!(decision.state.status, None);
    // Children with an expiry expire nevertheless.
    let mut world = windowed(Value::Null, text(timestamp(20)));
    world.pass(timestamp(1));
    world.composite.mode = Mode::DryRun;
    assert_eq!(world.pass(timestamp(20)), ["delete a"]);
}

#[test]
fn a_guarded_pass_deletes_nothing_that_the_policy_does_not_name() {
    let mut world = differing();
    world.composite.mode = Mode::Guard;
    assert_eq!(
        guard_report(&world, timestamp(1)).delete,
        ["ConfigMap dev/goes"]
    );
    let done = world.pass(timestamp(1));
    assert_eq!(done[1..], ["change changes", "create new"], "{done:?}");
    // The policy may not want any of the children about which it does not respond.
    world.facts.called = Some(Err(Failure::transient("PolicyFailed", "no").into()));
    assert_eq!(guard_report(&world, timestamp(1)).doubtful, 4);
    world.composite.mode = Mode::Run;
    world.answers(&json!({"children": [map("stays", "x"), map("changes", "y"), map("new", "x")]}));
    assert_eq!(world.pass(timestamp(2)), ["delete goes"]);
}

#[test]
fn uncounted_policy_causes_no_steps_except_expiry() {
    let answered_by = |world: &mut World, policy: &str| {
        if let Some(Ok(called)) = &mut world.facts.called {
            called.policy = Some(policy.to_owned());
        }
    };
    let mut world = differing();
    world.composite.policy = Some("sha256:one".to_owned());
    for mode in [Mode::Run, Mode::Guard, Mode::DryRun] {
        world.composite.mode = mode;
        answered_by(&mut world, "sha256:two");
        let plan = world.plan(timestamp(1));
        assert_eq!(plan.steps().count(), 0, "{mode:?}");
        assert!(plan.wake.is_some(), "{mode:?}");
    }
    world.composite.mode = Mode::Run;
    answered_by(&mut world, "sha256:one");
    assert_eq!(
        world.pass(timestamp(1)),
        ["delete goes", "change changes", "create new"]
    );

    let mut world = windowed(Value::Null, text(timestamp(20)));
    world.pass(timestamp(1));
    world.composite.policy = Some("sha256:one".to_owned());
    answered_by(&mut world, "sha256:two");
    assert_eq!(world.pass(timestamp(20)), ["delete a"]);
}

fn report(parent: &str, deletes: usize) -> (String, Report) {
    let report = Report {
        parent: parent.to_owned(),
        delete: (0..deletes)
            .map(|number| format!("ConfigMap {number}"))
            .collect(),
        ..Report::default()
    };
    (parent.to_owned(), report)
}

#[test]
fn tally_is_complete_with_all_reports_and_is_bounded() {
    let reports = [report("a", 7), report("gone", 90)].into();
    let tally = Tally::from_reports(None, ["a", "b"], &reports);
    assert!(!tally.complete && !tally.is_within(1_000));
    assert_eq!((tally.parents, tally.deletions), (2, 7));
    assert_eq!(tally.pending[0].delete.len(), 5);
    assert_eq!(tally.pending[0].more, 2);
    let names: Vec<String> = (0..100).map(|number| format!("p{number}")).collect();
    let reports = names.iter().map(|name| report(name, 1)).collect();
    let tally = Tally::from_reports(None, names.iter().map(String::as_str), &reports);
    assert_eq!((tally.pending.len(), tally.deletions), (20, 100));
    assert!(tally.is_within(100) && !tally.is_within(99));
}

/// Returns the mode and the status of a composite with this tally of its policy.
fn guarded(object: &RegoController, tally: Option<Tally>) -> (Mode, Value) {
    let found = PolicyFound {
        digest: "sha256:0123456789".to_owned(),
        language: "v1".to_owned(),
    };
    let survey = Survey {
        policy: Some(Ok(found)),
        tally,
        ..survey()
    };
    let composites = composites::<RegoController>();
    let decision = composites.decide(timestamp(0), object, &Some(survey), &[]);
    let decision = decision.decided().unwrap();
    let run = decision.plan.steps().find_map(|step| match step {
        Step::Effect(effect) => Some(effect.payload.clone()),
        _ => None,
    });
    let run: Run = serde_json::from_value(run.unwrap()).unwrap();
    let status = composites.status(timestamp(0), object, &decision, &Default::default());
    (run.mode, serde_json::to_value(status).unwrap())
}

fn told_of(policy: &str, deletions: usize) -> Option<Tally> {
    let reports = [report("dev/one", deletions)].into();
    Some(Tally::from_reports(Some(policy), ["dev/one"], &reports))
}

fn deleting(deletions: usize) -> Option<Tally> {
    told_of("sha256:0123456789", deletions)
}

#[test]
fn a_policy_that_would_delete_too_many_waits_until_its_digest_is_accepted() {
    let object = rego(|_| {});
    assert_eq!(guarded(&object, None).0, Mode::Guard);
    let (mode, status) = guarded(&object, deleting(11));
    assert_eq!(mode, Mode::Guard);
    assert_eq!(status["conditions"][0]["reason"], "DeletionLimitExceeded");
    let message = status["conditions"][0]["message"].as_str().unwrap();
    assert!(
        message.contains("would delete 11 children; the maximum is 10"),
        "{message}"
    );
    assert!(
        message.contains("oz.wizardofoz.co/accept-deletions=sha256:0123456789"),
        "{message}"
    );
    assert_eq!(status["pending"][0]["parent"], "dev/one");
    assert_eq!(status["acceptedDigest"], Value::Null);

    // The reports about another policy, which may still run, do not apply to this one.
    let (mode, status) = guarded(&object, told_of("sha256:another", 0));
    assert_eq!(
        (mode, &status["acceptedDigest"]),
        (Mode::Guard, &Value::Null)
    );

    let (mode, status) = guarded(&object, deleting(10));
    assert_eq!(mode, Mode::Run);
    assert_eq!(status["acceptedDigest"], "sha256:0123456789");
    assert_eq!(status["policy"], "01234567");
    assert_eq!(status["parents"], 1);
    assert_eq!(status["pending"], Value::Null);

    let accept = |digest: &str| {
        let digest = digest.to_owned();
        rego(move |rego| {
            rego["metadata"]["annotations"] = json!({"oz.wizardofoz.co/accept-deletions": digest});
        })
    };
    assert_eq!(
        guarded(&accept("sha256:0123456789"), deleting(11)).0,
        Mode::Run
    );
    assert_eq!(
        guarded(&accept("sha256:another"), deleting(11)).0,
        Mode::Guard
    );
    let ran = rego(|rego| rego["status"] = json!({"acceptedDigest": "sha256:0123456789"}));
    assert_eq!(guarded(&ran, deleting(11)).0, Mode::Run);
    let dry = rego(|rego| rego["spec"]["mode"] = json!("DryRun"));
    let (mode, status) = guarded(&dry, deleting(3));
    assert_eq!(
        (mode, &status["acceptedDigest"]),
        (Mode::DryRun, &Value::Null)
    );
    assert_eq!(status["pending"][0]["delete"].as_array().unwrap().len(), 3);
    assert_eq!(
        guarded(&dry, deleting(11)).1["conditions"][0]["status"],
        "True"
    );
}

#[test]
fn an_account_that_composites_do_not_run_as_is_not_permitted() {
    let object = rego(|rego| rego["spec"]["runAs"]["serviceAccount"] = json!("somebody"));
    let (mode, status) = guarded(&object, None);
    assert_eq!(mode, Mode::Ends);
    assert_eq!(status["conditions"][1]["reason"], "AccountNotListed");
}
