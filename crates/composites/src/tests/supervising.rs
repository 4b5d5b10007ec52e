//! The supervision of composites: the conditions under which they run.

use kube::core::Selector;
use oz_api::composite::{CompositeController, Method};
use oz_core::controller::{Answers, Controller, Failure, Outcome, Plan, Step};
use oz_core::transient::BindableRoles;
use serde_json::{Value, json};

use super::world::*;
use crate::declared::{Declared, KindName};
use crate::related::Rule;
use crate::supervise::{
    Composites, FINALIZER, KIND_MISSING, Kinds, Later, Mode, PORT, PolicyFound, Run, Runs, Survey,
    needs, needs_of_rules,
};
use crate::{Account, Accounts, Source, supervise};

pub(super) fn composites<S: Source>() -> Composites<S> {
    let natively = KindName {
        api_version: "example.com/v1".to_owned(),
        resource: "transientrolebindings".to_owned(),
    };
    let accounts = Accounts {
        default: "oz-system/oz-composites".parse().unwrap(),
        others: vec!["team/deployer".parse().unwrap()],
    };
    Composites::new(accounts, vec![natively])
}

pub(super) fn survey() -> Survey {
    let family = World::new(Method::InPlace).composite.family;
    Survey {
        kinds: Kinds::Served {
            family: family.clone(),
            hidden: false,
        },
        family: Ok(family),
        observes_generation: true,
        lacks: Ok(Vec::new()),
        policy: None,
        held: None,
        tally: None,
        later: Later::default(),
    }
}

/// Returns the plan, the status, and the report to the port.
pub(super) fn decide(
    object: &CompositeController,
    survey: Option<Survey>,
) -> (Plan, Value, Option<Run>) {
    let composites = composites::<CompositeController>();
    let decision = composites
        .decide(timestamp(0), object, &survey, &[])
        .decided()
        .unwrap();
    let effect = decision.plan.steps().find_map(|step| match step {
        Step::Effect(effect) => Some(effect.clone()),
        _ => None,
    });
    let run = effect.as_ref().map(|effect| {
        assert_eq!(effect.port, PORT);
        serde_json::from_value::<Run>(effect.payload.clone()).unwrap()
    });
    let mut answers = Answers::default();
    if let (Some(effect), Some(run)) = (&effect, &run) {
        let running = run.mode == Mode::Run && run.composite.is_some();
        answers.insert(effect, serde_json::to_value(Runs { running }).unwrap());
    }
    let outcome = Outcome {
        answers,
        ..Outcome::default()
    };
    let status = composites.status(timestamp(0), object, &decision, &outcome);
    let status = status.conditions.iter().map(|condition| {
        (
            condition.type_.clone(),
            json!([condition.status, condition.reason, condition.message]),
        )
    });
    (decision.plan, Value::Object(status.collect()), run)
}

/// Checks that the composite runs for the expiry of its children only, also in an operator that has not run it before.
pub(super) fn ends_only(run: Option<Run>) {
    let run = run.unwrap();
    assert_eq!(run.mode, Mode::Ends);
    assert!(run.family.is_some());
    assert!(run.composite.unwrap().declared().is_ok());
}

#[test]
fn valid_and_permitted_composite_runs() {
    let (plan, status, run) = decide(&controller(|_| {}), Some(survey()));
    for type_ in ["Accepted", "Permitted", "Running"] {
        assert_eq!(status[type_][0], "True", "{status}");
    }
    assert_eq!(run.unwrap().mode, Mode::Run);
    assert!(plan.wake.is_some());
}

#[test]
fn composite_is_surveyed_only_if_spec_is_valid() {
    let asked = |object: &CompositeController| {
        composites()
            .decide(timestamp(0), object, &None, &[])
            .question()
    };
    assert!(asked(&controller(|_| {})).is_some());
    let nothing = controller(|composite| {
        composite["spec"]["parentResource"]["resource"] = json!("");
    });
    assert!(asked(&nothing).is_none());
}

#[test]
fn all_that_is_wrong_is_said_by_field() {
    let wrong = controller(|composite| {
        composite["spec"] = json!({
            "parentResource": {"apiVersion": "crds.wizardofoz.co/v1alpha1", "resource": "execaccessrequests"},
            "childResources": [
                {"apiVersion": "v1", "resource": "pods", "updateStrategy": {"method": "RollingRecreate"}},
                {"apiVersion": "v1", "resource": "pods"},
                {"apiVersion": "admissionregistration.k8s.io/v1", "resource": "validatingwebhookconfigurations"},
                {"apiVersion": "v1", "resource": "pods/exec"},
            ],
            "endpointConfigs": [{"host": "a"}],
            "hooks": {
                "sync": {"webhook": {"url": "ftp://functions", "caBundle": {"inline": "x"}}},
                "finalize": {"webhook": {"timeout": "soon", "path": "x"}},
                "customize": {"webhook": {}},
            },
        });
    });
    let (_, status, run) = decide(&wrong, None);
    assert_eq!(run.unwrap().mode, Mode::Ends);
    let said = status["Accepted"][2].as_str().unwrap();
    for part in [
        "spec.parentResource",
        "is reserved",
        "spec.childResources[0].updateStrategy.method: RollingRecreate is not supported yet",
        "spec.childResources[1]: pods exists twice",
        "spec.childResources[2]",
        "spec.childResources[3]",
        "spec.endpointConfigs",
        "spec.hooks.sync.webhook.caBundle",
        "must begin with http:// or https://",
        "spec.hooks.finalize.webhook",
        "spec.hooks.customize.webhook",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn missing_right_is_reported_as_rule_and_expiry_continues() {
    let declared = Declared::from_composite(&controller(|_| {})).unwrap();
    let mut found = survey();
    let mut lacks = needs(&declared, true);
    lacks.retain(|right| {
        right.resource.as_deref() == Some("configmaps") || right.subresource.is_some()
    });
    found.lacks = Ok(lacks);
    let (_, status, run) = decide(&controller(|_| {}), Some(found));
    assert_eq!(status["Accepted"][0], "True");
    assert_eq!(
        status["Permitted"][2],
        "oz-system/oz-composites lacks these rules of a ClusterRole: \
         {\"apiGroups\":[\"\"],\"resources\":[\"configmaps\"],\"verbs\":[\"create\",\"delete\",\"list\",\"patch\",\"watch\"]}, \
         {\"apiGroups\":[\"test.example.org\"],\"resources\":[\"fleets/status\"],\"verbs\":[\"patch\"]}"
    );
    assert_eq!(
        (status["Running"][0].as_str(), run.unwrap().mode),
        (Some("False"), Mode::Ends)
    );
}

#[test]
fn rights_that_functions_determine_are_reported_with_all_others() {
    let roles = BindableRoles(vec![
        "view".parse().unwrap(),
        "shop/deployer".parse().unwrap(),
    ]);
    let binding = controller(|composite| {
        composite["spec"]["childResources"] = json!([
            {"apiVersion": "rbac.authorization.k8s.io/v1", "resource": "rolebindings"},
        ]);
    });
    let declared = Declared::from_composite(&binding).unwrap();
    let binds = |roles: &[&str]| {
        let roles = roles.iter().map(|role| role.parse().unwrap()).collect();
        supervise::binds(&declared, &BindableRoles(roles))
    };
    assert_eq!(
        binds(&["view", "shop/deployer"]),
        supervise::binds(&declared, &roles)
    );
    assert!(
        binds(&["view", "team-*"]).is_empty(),
        "not all names are known"
    );
    let maps = Declared::from_composite(&controller(|_| {})).unwrap();
    assert!(supervise::binds(&maps, &roles).is_empty());

    let rule = Rule {
        kind: KindName {
            api_version: "apps/v1".to_owned(),
            resource: "deployments".to_owned(),
        },
        namespace: None,
        names: Vec::new(),
        labels: Selector::default(),
        namespaces: Some(Selector::default()),
    };
    let mut found = survey();
    found.lacks = Ok(needs_of_rules(&[rule]));
    found.later.binds = supervise::binds(&declared, &roles);
    let (_, status, run) = decide(&binding, Some(found.clone()));
    assert_eq!(
        status["Permitted"][2],
        "oz-system/oz-composites lacks these rules of a ClusterRole: \
         {\"apiGroups\":[\"\"],\"resources\":[\"namespaces\"],\"verbs\":[\"list\",\"watch\"]}, \
         {\"apiGroups\":[\"apps\"],\"resources\":[\"deployments\"],\"verbs\":[\"list\",\"watch\"]}, \
         {\"apiGroups\":[\"rbac.authorization.k8s.io\"],\"resourceNames\":[\"view\"],\"resources\":[\"clusterroles\"],\"verbs\":[\"bind\"]}, \
         {\"apiGroups\":[\"rbac.authorization.k8s.io\"],\"resourceNames\":[\"deployer\"],\"resources\":[\"roles\"],\"verbs\":[\"bind\"]}"
    );
    ends_only(run);
    // All rights in a role suffice to bind it, so that it runs.
    found.lacks = Ok(Vec::new());
    let (_, status, run) = decide(&binding, Some(found));
    assert_eq!(status["Permitted"][1], "PermissionMissing");
    assert_eq!(
        (status["Running"][0].as_str(), run.unwrap().mode),
        (Some("True"), Mode::Run)
    );
}

#[test]
fn composite_waits_for_its_first_customize_and_continues_without_a_later_one() {
    let mut found = survey();
    found.later.customize = Some(Failure::transient("HookFailed", "no response"));
    let mut object = controller(|composite| composite["metadata"]["generation"] = json!(2));
    let (plan, status, run) = decide(&object, Some(found.clone()));
    assert_eq!(status["Permitted"][1], "HookFailed");
    let message = status["Permitted"][2].as_str().unwrap();
    assert!(
        message.contains("when customize has responded"),
        "{message}"
    );
    assert!(plan.wake.is_some());
    ends_only(run);
    for (generation, mode) in [(2, Mode::Run), (1, Mode::Ends)] {
        object.status = serde_json::from_value(json!({
            "observedGeneration": generation,
            "conditions": [{
                "type": "Running", "status": "True", "reason": "Running", "message": "",
                "lastTransitionTime": "2026-01-31T12:00:00Z",
            }],
        }))
        .unwrap();
        let (.., run) = decide(&object, Some(found.clone()));
        assert_eq!(run.unwrap().mode, mode, "generation {generation}");
    }
}

#[test]
fn composite_runs_as_named_account_if_listed() {
    let named = |account: &str| {
        controller(|composite| {
            composite["metadata"]["annotations"] = json!({"oz.wizardofoz.co/run-as": account});
        })
    };
    let (_, status, run) = decide(&named("team/deployer"), Some(survey()));
    let run = run.unwrap();
    assert_eq!(
        (run.mode, run.account.to_string().as_str()),
        (Mode::Run, "team/deployer")
    );
    assert_eq!(status["Permitted"][0], "True");
    let (_, status, run) = decide(&named("team/owner"), Some(survey()));
    let run = run.unwrap();
    assert_eq!(
        (run.mode, run.account.to_string().as_str()),
        (Mode::Ends, "oz-system/oz-composites"),
        "nobody is it that is not listed"
    );
    assert_eq!(status["Permitted"][1], "AccountNotListed");
}

#[test]
fn composite_without_installation_labels_is_released() {
    let here = || composites::<CompositeController>().selecting([("group".into(), "one".into())]);
    let plan = |object: &CompositeController, survey: Option<Survey>| {
        let decision = here().decide(timestamp(0), object, &survey, &[]).decided();
        decision.unwrap().plan
    };
    let labelled =
        controller(|composite| composite["metadata"]["labels"] = json!({"group": "one"}));
    let asked = here()
        .decide(timestamp(0), &labelled, &None, &[])
        .question();
    assert!(asked.is_some(), "it is run here");
    let other = controller(|_| {});
    let steps: Vec<_> = plan(&other, None).steps().cloned().collect();
    assert!(matches!(steps[..], [Step::Effect(_)]), "{steps:?}");
    let mut held = other;
    held.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    let mut found = survey();
    found.held = Some(0);
    let released = plan(&held, Some(found));
    assert!(
        released
            .steps()
            .any(|step| matches!(step, Step::Release(_)))
    );
}

#[test]
fn annotations_say_what_the_kind_has_no_fields_for() {
    let annotated = |annotations: &[(&str, &str)]| {
        let annotations: Vec<_> = annotations
            .iter()
            .map(|(name, value)| (format!("oz.wizardofoz.co/{name}"), json!(value)))
            .collect();
        let annotations: Value = annotations.into_iter().collect();
        controller(|composite| composite["metadata"]["annotations"] = annotations).declared()
    };
    let window = [
        ("window-from", ".spec.from"),
        ("window-until", ".spec.until"),
    ];
    let all = [&window[..], &[("max-deletions", "3"), ("mode", "DryRun")]].concat();
    let declared = annotated(&all).unwrap();
    assert!(declared.window.is_some() && declared.dry_run);
    assert_eq!(declared.most_deletions, Some(3));
    let declared = annotated(&[("mode", "Enforce")]).unwrap();
    assert!(declared.window.is_none() && !declared.dry_run && declared.run_as.is_none());
    for (annotation, expected) in [
        (("run-as", "nobody"), "is not NAMESPACE/NAME"),
        (("max-deletions", "-1"), "is not from 0 to"),
        (("mode", "Maybe"), "neither Enforce nor DryRun"),
        (
            ("window-from", ".spec.from"),
            "is missing: a window requires an expiry",
        ),
        (("window-until", "spec"), "is not a path"),
        (
            ("window-until", ".status.until"),
            "is in metadata or status",
        ),
    ] {
        let violations = annotated(&[annotation]).unwrap_err();
        let said = oz_core::validate::Violation::list(&violations);
        assert!(said.contains(expected), "{annotation:?}: {said}");
        assert!(
            said.contains("metadata.annotations[oz.wizardofoz.co/"),
            "{said}"
        );
        // Children that were created before still expire.
        let wrong = controller(|composite| {
            let name = format!("oz.wizardofoz.co/{}", annotation.0);
            composite["metadata"]["annotations"] = json!({ name: annotation.1 });
        });
        assert!(wrong.readable().is_some(), "{annotation:?}");
    }
}

#[test]
fn composite_of_native_kind_does_not_run() {
    let native = controller(|composite| {
        composite["spec"]["parentResource"] =
            json!({"apiVersion": "example.com/v1", "resource": "transientrolebindings"});
    });
    let (_, status, run) = decide(&native, Some(survey()));
    assert_eq!(status["Accepted"][1], "ServedNatively");
    ends_only(run);
}

#[test]
fn composite_with_expiring_children_is_held_until_they_are_gone() {
    let mut found = survey();
    found.policy = Some(Ok(PolicyFound {
        digest: "d".to_owned(),
        language: "v1".to_owned(),
    }));
    let (plan, ..) = decide(&controller(|_| {}), Some(found.clone()));
    assert!(matches!(plan.steps().next(), Some(Step::Hold(name)) if name == FINALIZER));

    let mut leaving = controller(|_| {});
    leaving.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    leaving.metadata.deletion_timestamp = Some(time());
    let releases = |plan: &Plan| plan.steps().any(|step| matches!(step, Step::Release(_)));
    let (plan, _, run) = decide(&leaving, Some(found.clone()));
    assert!(!releases(&plan));
    assert_eq!(run.unwrap().mode, Mode::Leave);
    found.held = Some(2);
    assert!(!releases(&decide(&leaving, Some(found.clone())).0));
    found.held = Some(0);
    let (plan, _, run) = decide(&leaving, Some(found.clone()));
    assert!(releases(&plan) && run.unwrap().composite.is_none());
    // Without a CustomResourceDefinition of their kind there are no parents.
    found.held = None;
    found.family = Err(Failure::transient(KIND_MISSING, "gone"));
    found.kinds = Kinds::NoParents;
    assert!(releases(&decide(&leaving, Some(found)).0));
}

#[test]
fn an_account_is_a_namespace_and_a_name() {
    let account: Account = "a/b".parse().unwrap();
    assert_eq!(account.user(), "system:serviceaccount:a:b");
    for text in ["", "a", "/b", "a/"] {
        assert!(text.parse::<Account>().is_err(), "{text}");
    }
}
