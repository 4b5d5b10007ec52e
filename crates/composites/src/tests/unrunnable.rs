//! The remains of a composite that cannot run or is deleted: children with an expiry, and finalizers.

use oz_api::composite::{CompositeController, CompositeControllerStatus};
use oz_core::controller::{Controller, Failure, Plan, Step};
use serde_json::json;

use super::supervising::{composites, decide, ends_only, survey};
use super::world::*;
use crate::supervise::{FINALIZER, KIND_MISSING, Kinds, Mode, PolicyFound, Run, Survey};

/// Returns the composite with its finalizer, while it is being deleted.
fn deleted(change: impl FnOnce(&mut serde_json::Value)) -> CompositeController {
    let mut deleted = controller(change);
    deleted.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    deleted.metadata.deletion_timestamp = Some(time());
    deleted
}

fn releases(plan: &Plan) -> bool {
    plan.steps().any(|step| matches!(step, Step::Release(_)))
}

fn missing() -> Failure {
    Failure::transient(KIND_MISSING, "the API server has no widgets")
}

/// Returns a survey without one kind of child, as if the API server did not serve it.
fn without_child(hidden: bool) -> Survey {
    let mut found = survey();
    let mut family = found.family.unwrap();
    family.children.clear();
    found.kinds = Kinds::Served { family, hidden };
    found.family = Err(missing());
    found
}

fn mode(run: Option<Run>) -> (Mode, bool) {
    let run = run.expect("the port is told nothing");
    (run.mode, run.family.is_some() && run.composite.is_some())
}

#[test]
fn a_missing_kind_of_child_is_no_missing_kind_of_parent() {
    let object = deleted(|_| {});
    let (plan, _, run) = decide(&object, Some(without_child(true)));
    assert!(!releases(&plan), "children that are not served have ends");
    assert_eq!(mode(run), (Mode::Ends, true));
    assert!(plan.wake.is_some());
    // Without a CustomResourceDefinition there are no children of that kind either.
    let mut found = without_child(false);
    let (plan, _, run) = decide(&object, Some(found.clone()));
    assert!(!releases(&plan));
    assert_eq!(mode(run), (Mode::Leave, true));
    found.held = Some(0);
    assert!(releases(&decide(&object, Some(found)).0));
}

#[test]
fn a_kind_of_parent_that_is_not_served_for_a_moment_still_has_parents() {
    let mut found = survey();
    (found.family, found.kinds) = (Err(missing()), Kinds::Unknown);
    let (plan, _, run) = decide(&deleted(|_| {}), Some(found));
    assert!(!releases(&plan) && plan.wake.is_some());
    assert_eq!(run.unwrap().mode, Mode::Ends);
}

#[test]
fn parents_without_a_status_are_let_go_of() {
    let mut found = survey();
    found.family = Err(Failure::invalid("StatusMissing", "no status subresource"));
    let (plan, _, run) = decide(&deleted(|_| {}), Some(found.clone()));
    assert!(!releases(&plan));
    assert_eq!(mode(run), (Mode::Leave, true));
    found.held = Some(0);
    assert!(releases(&decide(&deleted(|_| {}), Some(found)).0));
}

#[test]
fn invalid_composite_still_ends_children_after_restart() {
    let invalid = |composite: &mut serde_json::Value| {
        composite["spec"]["endpointConfigs"] = json!([{"host": "a"}]);
        composite["spec"]["hooks"]["sync"]["webhook"]["caBundle"] = json!({"inline": "x"});
        let children = composite["spec"]["childResources"].as_array_mut().unwrap();
        children[0]["updateStrategy"] = json!({"method": "RollingInPlace"});
        children.push(
            json!({"apiVersion": "crds.wizardofoz.co/v1alpha1", "resource": "podaccessrequests"}),
        );
    };
    let object = controller(invalid);
    let asked = composites::<CompositeController>().decide(timestamp(0), &object, &None, &[]);
    let asked = asked.question().expect("its kinds are looked up");
    let kinds: Vec<_> = asked
        .children
        .iter()
        .map(|(kind, _)| kind.to_string())
        .collect();
    assert_eq!(kinds, ["configmaps"], "what is reserved is nobody's child");
    let (_, status, run) = decide(&object, Some(survey()));
    assert_eq!(status["Accepted"][1], "NotAccepted");
    ends_only(run);
    let (_, _, run) = decide(&deleted(invalid), Some(survey()));
    assert_eq!(mode(run), (Mode::Leave, true));

    let (_, status, run) = decide(&controller(|_| {}), Some(without_child(true)));
    assert_eq!(status["Accepted"][1], KIND_MISSING);
    ends_only(run);
    let mut broken = survey();
    broken.policy = Some(Err(Failure::invalid("PolicyInvalid", "does not compile")));
    ends_only(decide(&controller(|_| {}), Some(broken)).2);
}

#[test]
fn composite_with_http_finalize_hook_is_held() {
    let holds = |plan: &Plan| {
        let mut steps = plan.steps();
        steps.any(|step| matches!(step, Step::Hold(name) if name == FINALIZER))
    };
    let finalizing = controller(|composite| {
        composite["spec"]["hooks"]["finalize"] =
            json!({"webhook": {"url": "http://functions/end"}});
    });
    assert!(holds(&decide(&finalizing, Some(survey())).0));
    assert!(!holds(&decide(&controller(|_| {}), Some(survey())).0));
    let mut found = survey();
    found.policy = Some(Ok(PolicyFound {
        digest: "d".to_owned(),
        language: "v1".to_owned(),
    }));
    assert!(holds(&decide(&controller(|_| {}), Some(found)).0));
}

/// The versions are those in the status: the test must not change with the version of oz.
#[test]
fn policy_that_an_earlier_version_accepted_keeps_its_children_and_names_the_version() {
    let mut before = controller(|_| {});
    before.status = Some(CompositeControllerStatus {
        policy_digest: Some("sha256:1".to_owned()),
        policy_version: Some("0.0.1".to_owned()),
        language: Some("v1".to_owned()),
        ..CompositeControllerStatus::default()
    });
    let mut found = survey();
    found.policy = Some(Err(Failure::invalid("PolicyInvalid", "p.rego:3:1: no")));
    found.refused = Some("sha256:1".to_owned());
    let (_, conditions, run) = decide(&before, Some(found.clone()));
    ends_only(run);
    let said = conditions["Accepted"][2].as_str().unwrap();
    assert!(said.starts_with("refused since oz "), "{said}");
    assert!(said.contains("; oz 0.0.1 accepted the same policy, and its children stay"));
    assert!(said.ends_with("p.rego:3:1: no"), "{said}");

    // The status keeps both versions, also for a later version that refuses the policy, too.
    let status = status_of(&before, &found);
    assert_eq!(status.policy_digest.as_deref(), Some("sha256:1"));
    assert_eq!(status.policy_version.as_deref(), Some("0.0.1"));
    assert!(status.policy_refused_since.is_some());
    before.status = Some(CompositeControllerStatus {
        policy_refused_since: Some("0.0.2".to_owned()),
        ..status
    });
    let status = status_of(&before, &found);
    assert_eq!(status.policy_refused_since.as_deref(), Some("0.0.2"));

    // A changed policy is a new one.
    found.refused = Some("sha256:2".to_owned());
    let (_, conditions, _) = decide(&before, Some(found.clone()));
    assert_eq!(conditions["Accepted"][2], "p.rego:3:1: no");
    let status = status_of(&before, &found);
    assert_eq!((status.policy_digest, status.policy_version), (None, None));
    assert_eq!(status.policy_refused_since, None);
    found.policy = Some(Ok(PolicyFound {
        digest: "sha256:3".to_owned(),
        language: "v1".to_owned(),
    }));
    let status = status_of(&before, &found);
    assert_eq!(status.policy_digest.as_deref(), Some("sha256:3"));
    assert!(
        status
            .policy_version
            .is_some_and(|version| version != "0.0.1")
    );
}

fn status_of(object: &CompositeController, survey: &Survey) -> CompositeControllerStatus {
    let composites = composites::<CompositeController>();
    let decision = composites.decide(timestamp(0), object, &Some(survey.clone()), &[]);
    let decision = decision.decided().unwrap();
    composites.status(timestamp(0), object, &decision, &Default::default())
}
