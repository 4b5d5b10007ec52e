//! A grant: its writes, their order, and its subjects.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use oz_api::{
    ExecAccessRequestSpec, OnTemplateChange, Operation, Phase, SessionProbe, Timeout, conditions,
};
use proptest::prelude::*;
use serde_json::json;

use super::world::*;
use crate::access::continued::Continued;
use crate::access::exec::Facts;
use crate::access::kind::{Kind as _, Question};
use crate::controller::{Answers, Controller, Failure, Live, Outcome, Step};
use crate::kinds::AccessRequest as _;

#[test]
fn the_binding_comes_after_the_role_and_the_record() {
    let plan = World::new().plan(timestamp(0));
    let stages: Vec<Vec<String>> = plan
        .stages
        .iter()
        .map(|stage| {
            stage
                .iter()
                .map(|step| match step {
                    Step::Apply(child) => child.resource.kind.clone(),
                    Step::Record(record) => record.action.to_string(),
                    Step::Own(_) => "Own".into(),
                    Step::Look(_) => "Look".into(),
                    other => panic!("unexpected {other:?}"),
                })
                .collect()
        })
        .collect();
    assert_eq!(
        stages,
        [
            vec!["Look"],
            vec!["Role", "AccessGranted"],
            vec!["Look"],
            vec!["RoleBinding"],
            vec!["Own"]
        ]
    );
    assert_eq!(plan.wake, Some(timestamp(300)));
}

#[test]
fn the_requester_alone_gets_exactly_these_verbs_on_exactly_one_pod() {
    let mut world = World::new();
    world.settle(timestamp(1));
    let role: Role = world.live[0].parse().unwrap();
    let binding: RoleBinding = world.live[1].parse().unwrap();
    let chosen = world.status().pod_name.unwrap();
    let rules: Vec<(String, Vec<String>)> = role
        .rules
        .unwrap()
        .into_iter()
        .map(|rule| {
            assert_eq!(rule.resource_names, Some(vec![chosen.clone()]));
            (rule.resources.unwrap().join(","), rule.verbs)
        })
        .collect();
    let verbs = |all: &[&str]| all.iter().map(|&verb| verb.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        rules,
        [
            ("pods".to_owned(), verbs(&["get", "list", "watch"])),
            ("pods/exec".to_owned(), verbs(&["get", "create"])),
        ]
    );
    let subjects = binding.subjects.unwrap();
    assert_eq!(subjects.len(), 1);
    assert_eq!(
        (subjects[0].kind.as_str(), subjects[0].name.as_str()),
        ("User", "alice")
    );
    assert_eq!(binding.role_ref.name, "oz-grant-debug-0a1b2c3d");
    assert_eq!(role.metadata.name, Some(binding.role_ref.name));
}

#[test]
fn operations_add_verbs() {
    let mut world = World::new();
    let operations = vec![
        Operation::Exec,
        Operation::Attach,
        Operation::PortForward,
        Operation::Log,
    ];
    world.config().operations = operations;
    world.settle(timestamp(1));
    let role: Role = world.live[0].parse().unwrap();
    let resources: Vec<String> = role
        .rules
        .unwrap()
        .into_iter()
        .flat_map(|rule| rule.resources.unwrap())
        .collect();
    assert_eq!(
        resources,
        [
            "pods",
            "pods/exec",
            "pods/attach",
            "pods/portforward",
            "pods/log"
        ]
    );
}

#[test]
fn debug_adds_what_kubectl_debug_does_and_nothing_twice() {
    use crate::build::handed_out;
    let of = |operations: &[Operation]| {
        let handed = handed_out(operations)
            .map(|(resource, verbs)| format!("{resource} {}", verbs.join(",")));
        handed.collect::<Vec<_>>()
    };
    assert_eq!(
        of(&[Operation::Debug]),
        [
            "pods get,list,watch",
            "pods/ephemeralcontainers patch",
            "pods/attach get,create",
            "pods/log get"
        ]
    );
    assert_eq!(
        of(&[Operation::Log, Operation::Debug, Operation::Attach]),
        [
            "pods get,list,watch",
            "pods/log get",
            "pods/ephemeralcontainers patch",
            "pods/attach get,create"
        ]
    );
}

#[test]
fn a_granted_request_says_all_there_is_to_know() {
    let mut world = World::new();
    let status = world.settle(timestamp(1));
    assert_eq!(status.phase, Phase::Active);
    assert!(status.ready);
    assert!(conditions::all_true(
        &status.conditions,
        &conditions::OF_READY_REQUEST
    ));
    assert_eq!(status.requester.as_deref(), Some("alice"));
    assert_eq!(status.expires_at, Some(timestamp(300)));
    assert_eq!(status.granted_at, Some(timestamp(1)));
    let pod = status.pod_name.unwrap();
    assert_eq!(status.pod_uid, Some(format!("uid-{pod}")));
    assert_eq!(
        status.access_message.unwrap(),
        format!("kubectl exec -ti -n shop {pod} -- /bin/sh")
    );
    let created =
        conditions::find(&status.conditions, conditions::ACCESS_RESOURCES_CREATED).unwrap();
    assert_eq!(
        created.message,
        "Success. Role oz-grant-debug-0a1b2c3d, RoleBinding debug-0a1b2c3d created"
    );
}

#[test]
fn a_granted_request_is_left_alone_until_it_ends() {
    let mut world = World::new();
    world.settle(timestamp(1));
    world.template = None;
    world.workload = Err(Failure::transient("Down", "the API server is gone"));
    let before = world.status();
    let plan = world.pass(timestamp(299));
    assert_eq!((plan.stages.len(), plan.wake), (0, Some(timestamp(300))));
    assert_eq!(plan.obstacle, None);
    assert_eq!(world.status(), before);
    assert!(world.asks(timestamp(299), &Facts::default()).is_none());
}

#[test]
fn the_target_is_looked_up_only_when_the_answer_matters() {
    let world = World::new();
    let mut facts = world.facts();
    facts.workload = None;
    let wants = |world: &World, facts: &Facts| {
        let question = world.asks(timestamp(1), facts);
        question.is_some_and(|question| matches!(question, Question::Workload(_)))
    };
    assert!(wants(&world, &facts));
    let mut stranger = world.clone();
    stranger.stamp("mallory", &["interns"]);
    assert!(!wants(&stranger, &facts));
    facts.template = None;
    assert!(!wants(&world, &facts));
}

#[test]
fn a_named_pod_is_the_one() {
    let mut world = World::asking(ExecAccessRequestSpec {
        template_name: "shell".into(),
        target_pod: Some("db-1".into()),
        ..ExecAccessRequestSpec::default()
    });
    assert_eq!(world.settle(timestamp(1)).pod_name.as_deref(), Some("db-1"));
}

#[test]
fn no_binding_without_a_durable_record() {
    let mut world = World::new();
    world.records_fail = true;
    let status = world.settle(timestamp(1));
    assert_eq!(world.kinds(), ["Role"]);
    assert_eq!((status.phase, status.ready), (Phase::Pending, false));
    world.records_fail = false;
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);
}

#[test]
fn a_request_older_than_its_template_is_tied_to_it() {
    let mut world = World::new();
    world.settle(timestamp(1));
    let owners = world.request.metadata.owner_references.clone().unwrap();
    assert_eq!(
        (owners[0].kind.as_str(), owners[0].uid.as_str()),
        ("ExecAccessTemplate", "template-uid")
    );
    assert_eq!(owners[0].block_owner_deletion, None);
    // An object with an owner reference needs no write.
    world.live.clear();
    world.request.status = None;
    let plan = world.plan(timestamp(1));
    assert!(applies(&plan) && !plan.steps().any(|step| matches!(step, Step::Own(_))));
}

#[test]
fn a_changed_template_ends_its_grants_only_if_it_said_so() {
    for (rule, phase) in [
        (OnTemplateChange::Keep, Phase::Active),
        (OnTemplateChange::Revoke, Phase::Revoked),
    ] {
        let mut world = World::new();
        world.config().on_template_change = rule;
        world.settle(timestamp(1));
        world.config().max_duration = "2h".into();
        assert_eq!(world.settle(timestamp(2)).phase, phase, "{rule:?}");
    }
}

#[test]
fn a_decision_sealed_for_another_request_is_not_taken() {
    let mut world = World::new();
    world.settle(timestamp(1));
    let mut other = World::new();
    other.live = world.live.clone();
    other.request.metadata.uid = Some("0a1b2c3d-ffff-4000-8000-000000000002".into());
    assert!(!applies(&other.plan(timestamp(2))));
    assert_eq!(other.settle(timestamp(2)).phase, Phase::Pending);
}

proptest! {
    /// A process is killed after any number of writes: the next process finds the decision again, and reaches the state
    /// that the first would have reached.
    #[test]
    fn a_crash_between_any_two_writes_loses_nothing(writes in 0_usize..6, pause in 0_i64..200) {
        let mut whole = World::new();
        whole.settle(timestamp(1));
        let mut killed = World::new();
        killed.writes_left = writes;
        killed.pass(timestamp(1));
        let decided = killed.live.first().cloned();
        // The pods of the workload have changed since then.
        killed.workload = Ok(workload(&["db-0", "db-1", "db-2", "db-3", "db-4"]));
        killed.writes_left = usize::MAX;
        let status = killed.settle(timestamp(1 + pause));
        prop_assert_eq!(status.phase, Phase::Active);
        prop_assert_eq!(status.expires_at, Some(timestamp(300)));
        prop_assert_eq!(killed.kinds(), ["Role", "RoleBinding"]);
        if let Some(decided) = decided {
            prop_assert_eq!(&status.pod_name, &whole.status().pod_name);
            prop_assert_eq!(&killed.live[0], &decided);
        }
    }

    #[test]
    fn a_plan_is_deterministic_and_its_own_result_satisfies_it(seconds in 0_i64..299) {
        let mut world = World::new();
        let plan = world.plan(timestamp(seconds));
        prop_assert_eq!(&plan, &world.plan(timestamp(seconds)));
        world.settle(timestamp(seconds));
        let status = world.status();
        prop_assert!(world.pass(timestamp(seconds)).stages.is_empty());
        prop_assert_eq!(world.status(), status);
    }

    /// Regardless of other objects, a plan deletes no object outside its own children, and no object under another UID
    /// than the observed one.
    #[test]
    fn a_plan_never_touches_an_object_it_does_not_own(
        seconds in -10_i64..10_000,
        with_role: bool,
        with_binding: bool,
        with_template: bool,
    ) {
        let mut world = World::new();
        world.settle(timestamp(1));
        if !with_role { world.remove("Role"); }
        if !with_binding { world.remove("RoleBinding"); }
        if !with_template { world.template = None; }
        let known: Vec<_> = world.live.iter().map(|live| live.reference().uid).collect();
        for step in world.plan(timestamp(seconds)).steps() {
            match step {
                Step::Delete(reference) => prop_assert!(known.contains(&reference.uid)),
                Step::Apply(child) => prop_assert_eq!(child.key().name, Some("debug-0a1b2c3d".to_owned())),
                _ => {}
            }
        }
    }
}

#[test]
fn name_held_by_foreign_role_is_reported_as_conflict() {
    let world = World::new();
    let live: Vec<Live> = Vec::new();
    let outcome = Outcome {
        live,
        failure: Some(Failure::conflict("Role shop/debug-0a1b2c3d is not ours")),
        answers: Answers::default(),
    };
    let status = world.controller.status(
        timestamp(1),
        &world.request,
        &world.decide(timestamp(1)).unwrap(),
        &outcome,
    );
    let created =
        conditions::find(&status.conditions, conditions::ACCESS_RESOURCES_CREATED).unwrap();
    assert_eq!(
        (created.status.as_str(), created.reason.as_str()),
        ("False", "NameConflict")
    );
    assert_eq!((status.phase, status.ready), (Phase::Pending, false));
}

#[test]
fn sidecar_and_debug_containers_are_probed_without_container_choice() {
    let mut world = World::new();
    let names = ["app", "mesh", "debugger", "plain"];
    let mut workload = workload(&["db-0"]);
    let running = |names: &[&str]| -> serde_json::Value {
        let one = |name: &&str| {
            json!({
                "name": name, "image": "i", "imageID": "sha256:1", "ready": true, "restartCount": 0,
            })
        };
        names.iter().map(one).collect()
    };
    workload.pods[0].spec = serde_json::from_value(json!({
        "containers": [{ "name": "app" }],
        "initContainers": [
            { "name": "migrate" },
            { "name": "mesh", "restartPolicy": "Always" },
            { "name": "plain", "restartPolicy": "Always" },
        ],
        "ephemeralContainers": [{ "name": "debugger" }],
    }))
    .unwrap();
    let status = workload.pods[0].status.as_mut().unwrap();
    let statuses = |names: &[&str]| serde_json::from_value(running(names)).unwrap();
    status.container_statuses = statuses(&["app"]);
    status.init_container_statuses = statuses(&["migrate", "mesh", "plain"]);
    status.ephemeral_container_statuses = statuses(&["debugger"]);
    world.probes = names
        .map(|name| SessionProbe {
            container: name.into(),
            image_id: "sha256:1".into(),
            shell: name != "plain",
            timeout: (name != "debugger" && name != "plain").then(Timeout::default),
        })
        .to_vec();
    world.workload = Ok(workload);
    world.settle(timestamp(1));
    let request = world.request.stored().unwrap();
    let grant = world.controller.decision(&request, &world.live).unwrap();
    let terms = &grant.sessions;
    let able: Vec<&String> = terms.timeouts.keys().collect();
    assert_eq!(able, ["app", "mesh"]);
    assert_eq!(terms.shells, ["debugger"]);
    assert_eq!(terms.beside, ["mesh", "plain", "debugger"]);
    // The API server chooses the one main container if the connection names none.
    assert_eq!(grant.container(None), Some("app"));
    let status = world.status();
    let cut = conditions::find(&status.conditions, conditions::SESSION_TERMINATION).unwrap();
    assert!(cut.message.contains("plain, debugger"), "{}", cut.message);
}

#[test]
fn extending_request_is_granted_same_pod_only() {
    let spec = |pod: Option<&str>| ExecAccessRequestSpec {
        template_name: "shell".into(),
        duration: Some("5m".into()),
        target_pod: pod.map(Into::into),
        extends: Some("first".into()),
        ..ExecAccessRequestSpec::default()
    };
    for pod in ["db-0", "db-1", "db-2"] {
        let mut first = World::new();
        first.request.metadata.name = Some("first".into());
        first.request.spec.target_pod = Some(pod.into());
        first.stamp("alice", &["devs"]);
        first.settle(timestamp(1));
        let continued = Continued::from_request(&keys(), &first.request.view());
        let mut next = World::asking(spec(None));
        next.continued = Some(continued.clone());
        assert_eq!(next.settle(timestamp(2)).pod_name.as_deref(), Some(pod));

        for (continued, asked) in [(None, None), (Some(continued), Some("db-3"))] {
            let mut next = World::asking(spec(asked));
            next.continued = continued;
            let status = next.settle(timestamp(2));
            assert_eq!(status.phase, Phase::Denied);
            assert_eq!(next.actions(), ["RequestDenied"]);
        }
    }
}
