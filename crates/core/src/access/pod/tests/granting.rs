//! A grant: its writes, their order, and their cost.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::DynamicObject;
use oz_api::{Phase, PodAccessRequestSpec, Requester, conditions, labels};
use proptest::prelude::*;
use serde_json::json;

use super::world::*;
use crate::access::author;
use crate::access::kind::Question;
use crate::build;
use crate::confine::NameServer;
use crate::controller::{Controller, Failure, Live, Step};
use crate::kinds::Kind as _;

#[test]
fn the_pod_comes_first_and_the_binding_only_when_it_is_known() {
    let mut world = World::new();
    let kinds = |world: &World, now| -> Vec<Vec<String>> {
        let stages = world.plan(now).stages;
        let name = |step: &Step| match step {
            Step::Apply(child) => child.resource.kind.clone(),
            Step::Record(record) => record.action.to_string(),
            Step::Own(_) => "Own".into(),
            Step::Look(_) => "Look".into(),
            other => panic!("unexpected {other:?}"),
        };
        stages
            .iter()
            .map(|stage| stage.iter().map(name).collect())
            .collect()
    };
    world.template = Some(template(
        json!({"network": {"egress": "Dns", "ingress": "None"}}),
    ));
    assert_eq!(kinds(&world, timestamp(1)), [["NetworkPolicy"], ["Pod"]]);
    assert_eq!(
        world.pass(timestamp(1)).wake,
        Some(timestamp(1)),
        "the rest follows at once"
    );
    assert_eq!(
        kinds(&world, timestamp(1)),
        [
            vec!["Look"],
            vec!["Role", "AccessGranted"],
            vec!["Look"],
            vec!["RoleBinding"],
            vec!["Own"]
        ]
    );
}

#[test]
fn a_grant_costs_four_writes_and_one_when_the_pod_is_ready() {
    let mut world = World::new();
    let template = world.template.clone().unwrap();
    let owner = crate::access::ending::adoption(
        &world.request.metadata,
        "PodAccessTemplate",
        &template.metadata,
    );
    world.request.metadata.owner_references = owner.map(|owner| vec![owner]);
    world.settle(timestamp(1));
    assert_eq!(world.writes, 4);
    world.start(timestamp(2));
    world.settle(timestamp(2));
    assert_eq!(world.writes, 5);
    assert!(world.status().ready);
}

#[test]
fn the_requester_alone_gets_into_exactly_this_pod() {
    let world = World::ready();
    let find = |kind: &str| {
        world
            .live
            .iter()
            .find(|live| live.resource.kind == kind)
            .unwrap()
    };
    let role: Role = find("Role").parse().unwrap();
    let binding: RoleBinding = find("RoleBinding").parse().unwrap();
    for rule in role.rules.unwrap() {
        assert_eq!(rule.resource_names, Some(vec![NAME.to_owned()]));
    }
    let subjects = binding.subjects.unwrap();
    assert_eq!((subjects.len(), subjects[0].name.as_str()), (1, "alice"));
    let status = world.status();
    assert_eq!(status.pod_uid.as_ref(), world.pod().metadata.uid.as_ref());
    assert_eq!(status.pod_name.as_deref(), Some(NAME));
    assert!(status.pod_digest.unwrap().starts_with("sha256:"));
    assert_eq!(
        status.access_message.unwrap(),
        format!("kubectl exec -ti -n shop {NAME} -- /bin/sh")
    );
    assert_eq!(
        world.condition(conditions::ACCESS_RESOURCES_CREATED).2,
        format!("Success. Pod {NAME}, Role oz-grant-{NAME}, RoleBinding {NAME} created")
    );
    assert_eq!(world.actions(), ["AccessGranted"]);
}

#[test]
fn pod_has_deadline_and_is_owned_by_request() {
    let mut world = World::new();
    world.settle(timestamp(1));
    let pod: Pod = world.live[0].parse().unwrap();
    let owner = &pod.metadata.owner_references.unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.block_owner_deletion),
        ("PodAccessRequest", None)
    );
    let spec = pod.spec.unwrap();
    assert_eq!(spec.active_deadline_seconds, Some(300 - 1 - 3));
    assert_eq!(spec.termination_grace_period_seconds, Some(1));
    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    let labels = pod.metadata.labels.unwrap();
    assert!(!labels.contains_key("app"), "{labels:?}");
    assert_eq!(labels[labels::OWNER_KIND], "PodAccessRequest");
}

#[test]
fn adjustment_of_pod_is_reported_in_condition() {
    let world = World::ready();
    let (status, reason, message) = world.condition(conditions::POD_ADJUSTED);
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Adjusted"));
    assert_eq!(
        message,
        "hostPort 80 of container app is dropped: the workload has it"
    );
}

#[test]
fn a_pod_that_is_too_large_is_denied_with_the_numbers() {
    let mut world = World::by(template(json!({"maxCpu": "1500m"})));
    let status = world.settle(timestamp(1));
    assert_eq!((status.phase, status.ready), (Phase::Denied, false));
    let message = world.condition(conditions::ACCESS_STILL_VALID).2;
    assert!(message.contains("2 cpu, maxCpu is 1500m"), "{message}");
    assert_eq!(
        world.condition(conditions::ACCESS_RESOURCES_CREATED).0,
        "False"
    );
    assert_eq!(world.condition(conditions::REQUESTER_VERIFIED).0, "True");
    assert!(world.live.is_empty());
    assert_eq!(world.actions(), ["RequestDenied"]);
}

#[test]
fn a_patch_that_does_not_fit_is_waited_for_and_named() {
    let patch = json!([{"op": "remove", "path": "/spec/hostname"}]);
    let mutation = json!({"controllerTargetMutationConfig": {"patchSpecOperations": patch}});
    let mut world = World::by(template(mutation));
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Pending);
    let message = world.condition(conditions::ACCESS_RESOURCES_CREATED).2;
    assert!(
        message.contains("patchSpecOperations[0] (remove /spec/hostname)"),
        "{message}"
    );
    world.workload.as_mut().unwrap().template["spec"]["hostname"] = json!("web");
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Starting);
}

#[test]
fn template_with_pod_spec_requires_no_workload() {
    let mut own = template(json!({"podSpec": {"containers": [{"name": "sh", "image": "sh:1"}]}}));
    own.spec.controller_target_ref = None;
    let mut world = World::by(own);
    world.workload = Err(Failure::transient("Down", "nothing is read"));
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Starting);
}

#[test]
fn the_workload_is_read_only_to_decide() {
    let mut world = World::new();
    let mut facts = world.facts();
    facts.workload = None;
    let wants = |world: &World| world.asks(timestamp(1), &facts).is_some();
    assert!(wants(&world));
    world.pass(timestamp(1));
    assert!(!wants(&world), "the pod carries the decision");
    world.settle(timestamp(1));
    assert!(!wants(&world));
}

#[test]
fn a_container_that_the_pod_does_not_have_is_refused() {
    let mut world = World::new();
    world.request.spec = PodAccessRequestSpec {
        container: Some("other".into()),
        ..world.request.spec.clone()
    };
    world.stamp("alice", &["devs"]);
    assert_eq!(world.settle(timestamp(1)).phase, Phase::Failed);
    assert!(world.live.is_empty());
}

#[test]
fn a_network_policy_says_what_the_template_says() {
    for (network, types, rules) in [
        (
            json!({"egress": "All", "ingress": "None"}),
            vec!["Ingress"],
            0,
        ),
        (json!({"egress": "Dns"}), vec!["Egress"], 1),
        (
            json!({"egress": "None", "ingress": "None"}),
            vec!["Ingress", "Egress"],
            0,
        ),
    ] {
        let mut world = World::by(template(json!({"network": network})));
        world.settle(timestamp(1));
        let policy: NetworkPolicy = world.live[0].parse().unwrap();
        let spec = policy.spec.unwrap();
        assert_eq!(spec.policy_types.unwrap(), types);
        assert_eq!(spec.egress.unwrap_or_default().len(), rules);
        assert!(spec.ingress.is_none());
    }
    let mut open = World::by(template(json!({"network": {}})));
    open.settle(timestamp(1));
    assert_eq!(open.kinds(), ["Pod", "Role", "RoleBinding"]);
}

#[test]
fn only_name_servers_may_be_asked_and_the_grant_says_which() {
    let network = template(json!({"network": {"egress": "Dns"}}));
    let mut world = World::by(network.clone());
    world.controller.name_servers = vec!["dns/app=dns:5353".parse().unwrap()];
    world.settle(timestamp(1));
    let policy: NetworkPolicy = world.live[0].parse().unwrap();
    let egress = serde_json::to_value(policy.spec.unwrap().egress).unwrap();
    assert_eq!(
        egress[0]["to"][0]["podSelector"],
        json!({"matchLabels": {"app": "dns"}})
    );
    // A changed name server, for later grants, is no drift in this grant.
    world.controller.name_servers = vec![NameServer::usual()];
    world.start(timestamp(2));
    assert_eq!(world.settle(timestamp(3)).phase, Phase::Active);
    // A rule of a release without name servers is no drift either.
    let mut grant = world.decision("Role");
    grant.own_pod.as_mut().unwrap().name_servers = None;
    let older = build::network_policy(&grant).unwrap().spec.unwrap();
    assert_eq!(older.egress.unwrap()[0].to, None);
}

#[test]
fn policies_that_open_what_the_template_closes_are_named() {
    let policy = |name: &str, selector: serde_json::Value| -> NetworkPolicy {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"podSelector": selector, "policyTypes": ["Egress"], "egress": [{}]},
        }))
        .unwrap()
    };
    let of_the_workload = policy("web", json!({"matchLabels": {"app": "web"}}));
    let of_all = policy("all", json!({}));
    let of_ours = policy(
        "ours",
        json!({"matchLabels": {"app.kubernetes.io/managed-by": "oz"}}),
    );
    let failure = Failure::transient("Timeout", "nobody answers");
    for (policies, expected) in [
        (
            Some(Ok(vec![of_the_workload.clone()])),
            Some(("True", "Success", "")),
        ),
        (
            Some(Ok(vec![of_the_workload, of_all, of_ours])),
            Some(("False", "OtherPolicies", ": all, ours")),
        ),
        (
            Some(Err(failure)),
            Some(("False", "NetworkPoliciesUnreadable", "nobody answers")),
        ),
    ] {
        let mut world = World::by(template(json!({"network": {"egress": "None"}})));
        let mut facts = world.facts();
        facts.policies = None;
        let question = world.asks(timestamp(1), &facts).unwrap();
        assert!(matches!(question, Question::Policies), "{question:?}");
        world.policies = policies;
        world.settle(timestamp(1));
        world.start(timestamp(2));
        // The finding is stored, and not determined again.
        world.policies = None;
        let status = world.settle(timestamp(3));
        assert!(status.ready);
        let there = oz_api::conditions::find(&status.conditions, "NetworkIsolated").is_some();
        assert_eq!(there, expected.is_some());
        if let Some((holds, reason, words)) = expected {
            let (status, told, message) = world.condition("NetworkIsolated");
            assert_eq!((status.as_str(), told.as_str()), (holds, reason));
            assert!(message.ends_with(words), "{message}");
        }
    }
}

#[test]
fn a_pod_is_made_only_if_its_templates_author_could_make_it() {
    let bob = Requester {
        user: "bob".into(),
        ..Requester::default()
    };
    let mut world = World::new();
    assert!(world.asks(timestamp(1), &world.facts()).is_none());
    world.controller.as_author = true;
    let unknown = world.plan(timestamp(1)).obstacle.unwrap();
    assert_eq!(unknown.reason, "AuthorUnknown");
    let template = world.template.as_mut().unwrap();
    let digest = template.spec_digest();
    author::write(&mut template.metadata, &bob, &digest);
    let Some(Question::Trial(trial)) = world.asks(timestamp(1), &world.facts()) else {
        panic!("nothing is tried");
    };
    assert_eq!((trial.author, trial.template.as_str()), (bob, "pod"));
    let annotations = trial.pod.object.metadata.annotations.unwrap_or_default();
    assert!(!annotations.contains_key(labels::GRANT));
    // The pod is not created before the trial, or if the trial is denied.
    for tried in [
        None,
        Some(Err(Failure::transient("AuthorRefused", "bob may not"))),
    ] {
        world.tried = tried;
        assert_eq!(world.settle(timestamp(1)).phase, Phase::Pending);
        assert!(world.live.is_empty());
    }
    let (_, _, message) = world.condition("AccessResourcesCreated");
    assert!(message.contains("bob may not"), "{message}");
    world.tried = Some(Ok(()));
    world.settle(timestamp(2));
    assert_eq!(world.kinds(), ["Pod", "Role", "RoleBinding"]);
    // The trial is not repeated.
    world.tried = None;
    assert!(world.asks(timestamp(2), &world.facts()).is_none());
    assert_eq!(world.settle(timestamp(3)).phase, Phase::Starting);
    // The author of an earlier spec is not the author of the template.
    let mut changed = World::new();
    changed.controller.as_author = true;
    let template = changed.template.as_mut().unwrap();
    author::write(&mut template.metadata, &Requester::default(), "another");
    let unknown = changed.plan(timestamp(1)).obstacle.unwrap();
    assert_eq!(unknown.reason, "AuthorUnknown");
}

#[test]
fn a_decision_on_the_pod_that_was_changed_is_not_taken() {
    let mut world = World::new();
    world.pass(timestamp(1));
    world.edit("Pod", |pod| {
        let annotations = pod.metadata.annotations.as_mut().unwrap();
        let grant = annotations.get_mut(labels::GRANT).unwrap();
        *grant = grant.replace("alice", "mallory");
    });
    assert!(world.plan(timestamp(1)).stages.is_empty());
    let status = world.settle(timestamp(2));
    assert_eq!(status.phase, Phase::Pending);
    assert_eq!(world.kinds(), ["Pod"], "nobody is let in");
}

/// A user who may create pods can give a pod the name and the marks of a grant, once they see the request.
#[test]
fn a_pod_that_only_bears_our_name_and_marks_is_waited_for_and_suffers_nothing() {
    let mut world = World::new();
    world.pass(timestamp(1));
    let forged = Live {
        object: DynamicObject {
            metadata: ObjectMeta {
                uid: Some("theirs".into()),
                annotations: None,
                ..world.pod().metadata.clone()
            },
            ..world.pod().clone()
        },
        ..world.live[0].clone()
    };
    world.live = vec![forged.clone()];
    world.settle(timestamp(2));
    let (held, reason, message) = world.condition(conditions::ACCESS_RESOURCES_CREATED);
    assert_eq!((held.as_str(), reason.as_str()), ("False", "NameConflict"));
    assert!(message.contains("oz does not change it"), "{message}");

    // A pod that is gone in time no longer blocks the request.
    let mut freed = world.clone();
    freed.live.clear();
    assert_eq!(freed.settle(timestamp(3)).phase, Phase::Starting);

    let mut revoked = world.clone();
    revoked.request.metadata.deletion_timestamp = Some(Time(timestamp(3)));
    revoked.settle(timestamp(3));
    assert_eq!(revoked.live.as_slice(), std::slice::from_ref(&forged));
    assert!(
        revoked
            .controller
            .orphaned(timestamp(4), None, &revoked.live)
            .stages
            .is_empty()
    );

    let status = world.settle(timestamp(100_000));
    assert_eq!(
        status.phase,
        Phase::Expired,
        "also over oz does not change it"
    );
    assert_eq!(world.live, [forged]);
}

#[test]
fn a_pod_that_takes_the_place_of_ours_ends_the_grant_and_is_left_alone() {
    let mut world = World::ready();
    world.edit("Pod", |pod| {
        pod.metadata.uid = Some("theirs".into());
        pod.metadata.annotations = None;
    });
    assert_eq!(world.settle(timestamp(3)).phase, Phase::Revoked);
    assert_eq!(world.kinds(), ["Pod"]);
    assert!(world.pod().metadata.deletion_timestamp.is_none());
}

#[test]
fn a_template_that_is_being_deleted_grants_nothing_more() {
    let mut world = World::new();
    let leaving = |world: &mut World| {
        let template = world.template.as_mut().unwrap();
        template.metadata.deletion_timestamp = Some(Time(timestamp(0)));
    };
    leaving(&mut world);
    world.settle(timestamp(1));
    let (held, _, message) = world.condition(conditions::TARGET_TEMPLATE_EXISTS);
    assert_eq!(held, "False");
    assert!(message.contains("is being deleted"), "{message}");
    assert!(world.live.is_empty());

    let mut granted = World::ready();
    leaving(&mut granted);
    assert_eq!(
        granted.settle(timestamp(3)).phase,
        Phase::Active,
        "what was granted stays"
    );
}

#[test]
fn access_message_contains_uid_assigned_by_api_server() {
    let command = "{{ .Metadata.Name }} {{ .Metadata.UID }}";
    let config = json!({"allowedGroups": ["devs"], "accessCommand": command});
    let mut world = World::by(template(json!({"accessConfig": config})));
    let status = world.settle(timestamp(1));
    assert_eq!(
        status.access_message,
        Some(format!("{NAME} {}", status.pod_uid.unwrap()))
    );
}

proptest! {
    /// A process is killed after any number of writes: the next process finds the decision again, and reaches the state
    /// that the first would have reached.
    #[test]
    fn a_crash_between_any_two_writes_loses_nothing(writes in 0_usize..7, pause in 0_i64..200) {
        let network = || template(json!({"network": {"egress": "None"}}));
        let mut killed = World::by(network());
        killed.writes_left = writes;
        killed.pass(timestamp(1));
        killed.pass(timestamp(1));
        let decided = killed.live.get(1).cloned();
        // The workload has another image since then.
        killed.workload.as_mut().unwrap().template["spec"]["containers"][0]["image"] = json!("app:2");
        killed.writes_left = usize::MAX;
        let status = killed.settle(timestamp(1 + pause.min(50)));
        prop_assert!(status.phase.is_granted());
        prop_assert_eq!(status.expires_at, Some(timestamp(300)));
        prop_assert_eq!(killed.kinds(), ["NetworkPolicy", "Pod", "Role", "RoleBinding"]);
        if let Some(decided) = decided {
            prop_assert_eq!(&killed.live[1], &decided);
        }
    }

    #[test]
    fn a_plan_is_deterministic_and_its_own_result_satisfies_it(seconds in 0_i64..59) {
        let mut world = World::new();
        prop_assert_eq!(world.plan(timestamp(seconds)), world.plan(timestamp(seconds)));
        world.settle(timestamp(seconds));
        let status = world.status();
        prop_assert!(world.pass(timestamp(seconds)).stages.is_empty());
        prop_assert_eq!(world.status(), status);
    }

    /// No pass reads a clock, and none takes long.
    #[test]
    fn no_instant_brings_it_down(seconds in -100_000_i64..100_000) {
        let mut world = World::ready();
        world.pass(timestamp(seconds));
        let _ = world.controller.orphaned(timestamp(seconds), None, &world.live);
    }
}
