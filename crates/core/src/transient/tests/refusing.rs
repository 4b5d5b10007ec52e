//! Denials when the window opens, regardless of the time since admission.

use oz_api::{Phase, TransientClusterRoleBinding, TransientRoleBinding, labels};

use super::world::*;
use crate::controller::{Controller as _, Failure, FailureClass};

type Change = fn(&mut World<TransientRoleBinding>);

#[test]
fn binding_that_is_not_permitted_is_denied_permanently() {
    let cases: [(&str, Change); 10] = [
        ("NotStamped", |world| {
            world.object.metadata.annotations = None
        }),
        ("StampForged", |world| {
            let annotations = world.object.metadata.annotations.as_mut().unwrap();
            let stamp = annotations.get_mut(labels::REQUESTER).unwrap();
            *stamp = stamp.replace("bob", "eve");
        }),
        ("StampOfAnotherRequest", |world| {
            world.object.spec.subjects[0].name = "mallory".to_owned();
        }),
        ("StampReplayed", |world| {
            world.same_stamp = Some("other".to_owned())
        }),
        ("RoleNotBindable", |world| {
            world.allow(&["edit", "shop/view"])
        }),
        ("RoleNotBindable", |world| world.allow(&[])),
        ("MayNotBind", |world| world.lookup.may_bind = Ok(false)),
        ("RoleTooPowerful", |world| {
            world.allow(&["vie*"]);
            let rules = world.lookup.role.as_mut().unwrap().as_mut().unwrap();
            rules[0].resources = Some(vec!["secrets".to_owned()]);
        }),
        ("WindowTooLong", |world| {
            let mut policy = policy(&["view"]);
            policy.longest = jiff::SignedDuration::from_secs(299);
            world.controller.policy = std::sync::Arc::new(policy);
        }),
        ("WindowTooFar", |world| {
            let mut policy = policy(&["view"]);
            policy.longest_lead = jiff::SignedDuration::from_secs(59);
            world.controller.policy = std::sync::Arc::new(policy);
        }),
    ];
    for (reason, change) in cases {
        let mut world = namespaced(|_| {});
        change(&mut world);
        let status = world.settle(timestamp(60));
        assert_eq!(status.phase, Phase::Denied, "{reason}");
        assert_eq!(world.condition("Ready"), format!("False ({reason})"));
        assert_eq!(world.actions(), ["RequestDenied"], "{reason}");
        // For good, though it might be let in now.
        world.allow(&["view"]);
        world.lookup.may_bind = Ok(true);
        assert_eq!(world.settle(timestamp(70)).phase, Phase::Denied, "{reason}");
        assert!(world.live.is_empty());
    }
}

#[test]
fn the_last_moment_before_a_window_of_the_longest_length_is_fine() {
    let mut world = namespaced(|_| {});
    let mut exact = policy(&["view"]);
    exact.longest = jiff::SignedDuration::from_secs(300);
    exact.longest_lead = jiff::SignedDuration::from_secs(60);
    world.controller.policy = std::sync::Arc::new(exact);
    assert_eq!(world.settle(timestamp(60)).phase, Phase::Active);
}

#[test]
fn namespace_limit_overrides_general_window_limit() {
    for (namespace, phase) in [("shop", Phase::Active), ("prod", Phase::Denied)] {
        let mut world = namespaced(|object| {
            object["metadata"]["namespace"] = namespace.into();
            let spec = object["spec"].as_object_mut().unwrap();
            spec.insert("validUntil".into(), timestamp(60 + 601).to_string().into());
        });
        assert_eq!(world.settle(timestamp(60)).phase, phase, "{namespace}");
    }
}

#[test]
fn a_role_with_wildcards_secrets_or_escalation_is_bound_only_by_its_full_name() {
    for (roles, phase) in [
        (&["view"][..], Phase::Active),
        (&["*"], Phase::Denied),
        (&["*", "view"], Phase::Active),
    ] {
        let mut world = namespaced(|_| {});
        world.allow(roles);
        let rules = world.lookup.role.as_mut().unwrap().as_mut().unwrap();
        rules[0].verbs = vec!["*".to_owned()];
        assert_eq!(world.settle(timestamp(60)).phase, phase, "{roles:?}");
    }
}

#[test]
fn dangerous_role_listed_by_name_is_bound_and_reported() {
    for (verb, condition, danger) in [
        ("create", Some("False (RoleTooPowerful)"), true),
        ("get", None, false),
    ] {
        let mut world = namespaced(|_| {});
        let rules = world.lookup.role.as_mut().unwrap().as_mut().unwrap();
        rules[0].verbs = vec![verb.to_owned()];
        let before = world.status();
        let status = world.settle(timestamp(60));
        assert_eq!(status.phase, Phase::Active);
        let told = oz_api::conditions::find(&status.conditions, "RoleHarmless");
        assert_eq!(told.is_some(), danger);
        assert_eq!(
            told.map(|_| world.condition("RoleHarmless")).as_deref(),
            condition
        );
        let granted = &world.records[0];
        assert_eq!(granted.details.contains_key("danger"), danger);
        let transitions = world
            .controller
            .transitions(&world.object, Some(&before), &status);
        let warned = transitions
            .iter()
            .any(|told| told.reason == "RoleTooPowerful");
        assert_eq!(warned, danger);
        // It says so to the end, and is told once.
        let ended = world.settle(timestamp(360));
        assert_eq!(ended.phase, Phase::Expired);
        let transitions = world
            .controller
            .transitions(&world.object, Some(&status), &ended);
        assert!(
            transitions
                .iter()
                .all(|told| told.reason != "RoleTooPowerful")
        );
    }
}

#[test]
fn nothing_is_bound_in_the_namespace_of_oz() {
    let mut world = namespaced(|object| object["metadata"]["namespace"] = "oz-system".into());
    assert_eq!(world.settle(timestamp(60)).phase, Phase::Denied);
    assert_eq!(world.condition("Ready"), "False (ReservedNamespace)");
}

#[test]
fn failed_lookup_leaves_binding_pending_and_is_retried() {
    let failure = || Failure::transient("Unreachable", "nobody answers");
    let cases: [(&str, Change); 4] = [
        ("RoleMissing", |world| world.lookup.role = Ok(None)),
        ("Unreachable", |world| {
            world.lookup.role = Err(Failure::transient("Unreachable", "nobody answers"));
        }),
        ("Unreachable", |world| {
            world.lookup.may_bind = Err(Failure::transient("Unreachable", "nobody answers"));
        }),
        ("Unreachable", |world| {
            world.lookup.taken = Err(Failure::transient("Unreachable", "nobody answers"));
        }),
    ];
    for (reason, change) in cases {
        let mut world = namespaced(|_| {});
        let plain = world.lookup.clone();
        change(&mut world);
        let plan = world.pass(timestamp(60));
        assert_eq!(plan.obstacle.unwrap().class, FailureClass::Transient);
        assert_eq!(
            plan.wake,
            Some(timestamp(360)),
            "the end is awaited all the same"
        );
        assert_eq!(world.condition("Ready"), format!("False ({reason})"));
        assert_eq!(world.status().phase, Phase::Pending);
        world.lookup = plain;
        assert_eq!(world.settle(timestamp(61)).phase, Phase::Active);
    }
    assert_eq!(failure().reason, "Unreachable");
}

#[test]
fn binding_is_not_created_without_lookup() {
    use crate::controller::Controller;
    let world = namespaced(|_| {});
    let facts = crate::transient::Facts::default();
    let verdict = world
        .controller
        .decide(timestamp(60), &world.object, &facts, &[]);
    assert!(verdict.decided().is_none());
}

#[test]
fn the_requester_is_asked_about_with_their_groups_and_in_the_place_of_the_binding() {
    let want = namespaced(|_| {}).wants(timestamp(60)).unwrap();
    let review = crate::transient::may_bind(&want.requester, want.namespace.as_deref(), &want.role);
    let spec = serde_json::to_value(review.spec).unwrap();
    assert_eq!(
        spec,
        serde_json::json!({
            "user": "bob", "groups": ["leads"],
            "resourceAttributes": {
                "group": "rbac.authorization.k8s.io", "resource": "clusterroles", "verb": "bind",
                "name": "view", "namespace": "shop",
            },
        })
    );
}

#[test]
fn a_binding_for_the_whole_cluster_is_stamped_and_made_without_a_namespace() {
    let mut world = World::<TransientClusterRoleBinding>::from_object(serde_json::json!({
        "metadata": {"name": "auditors"},
        "spec": {
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "Group", "name": "auditors"}],
            "duration": "1h",
        },
    }));
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Active);
    let live = &world.live[0];
    assert_eq!(live.key().to_string(), "ClusterRoleBinding auditors");
    assert_eq!(world.records[0].request.namespace, "");
    assert_eq!(world.settle(timestamp(3601)).phase, Phase::Expired);
    assert!(world.live.is_empty());
}
