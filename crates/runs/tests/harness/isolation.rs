//! NetworkPolicies that oz did not make, which add up with those that confine runs and seeds.

use std::sync::Arc;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::harness::{HarnessRunStatus, RunPhase, WorkspacePhase};
use oz_api::{conditions, labels};
use oz_core::controller::{Controller as _, Decision, Live, Outcome, Plan, Step, Verdict};
use oz_runs::isolation::{lean, scope, unreadable};
use oz_runs::run::{Facts, State};
use oz_runs::workspace;
use oz_trail::{Action, Record};
use serde_json::{Value, json};

use crate::runs::{Begun, Submitted};
use crate::seeds::{job, workspace};
use crate::starting::pod;
use crate::world::live;
use crate::{now, seeding};

/// A NetworkPolicy that lets the pods that it selects ask name servers.
pub(crate) fn allow_dns(name: &str, selector: Value) -> NetworkPolicy {
    let policy = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "birds", "uid": format!("uid-of-{name}"), "generation": 1},
        "spec": {
            "podSelector": selector, "policyTypes": ["Egress"],
            "egress": [{"ports": [{"protocol": "UDP", "port": 53}]}],
        },
    }));
    policy.unwrap()
}

fn kept(policies: impl IntoIterator<Item = NetworkPolicy>) -> Vec<Arc<NetworkPolicy>> {
    policies.into_iter().map(|it| Arc::new(lean(it))).collect()
}

/// Selectors, and whether they select the pods of the run squawk with UID u-1.
fn selectors() -> Vec<(Value, bool)> {
    let label = |key: &str, value: &str| json!({"matchLabels": {key: value}});
    let exists = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    vec![
        (json!({}), true),
        (label("paddock.dev/run", "squawk"), true),
        (label("job-name", "squawk"), true),
        (label("batch.kubernetes.io/job-name", "squawk"), true),
        (exists("batch.kubernetes.io/controller-uid"), true),
        (label(labels::OWNER_UID, "u-1"), true),
        (label(labels::OWNER_UID, "u-2"), false),
        (label("app", "shop"), false),
        (exists("app"), false),
    ]
}

fn records(plan: &Plan) -> Vec<&Record> {
    let steps = plan.stages.iter().flatten();
    let records = steps.filter_map(|step| match step {
        Step::Record(record) if record.action == Action::IsolationLost => Some(record),
        _ => None,
    });
    records.collect()
}

fn confined(status: &HarnessRunStatus) -> (bool, &str) {
    let found = conditions::find(&status.conditions, "Confined").unwrap();
    (found.status == "True", &found.message)
}

impl Begun {
    fn among(&self, facts: &Facts, known: &[Live]) -> (Decision<State>, HarnessRunStatus) {
        let Verdict::Decided(decision) = self.controller.decide(now(), &self.run, facts, known)
        else {
            panic!("a question");
        };
        let outcome = Outcome {
            live: known.to_vec(),
            ..Outcome::default()
        };
        let status = self
            .controller
            .status(now(), &self.run, &decision, &outcome);
        (decision, status)
    }
}

#[test]
fn run_opened_by_another_network_policy_is_reported_once_per_change() {
    let begun = Begun::new();
    let running = live(pod(&json!({"phase": "Running", "startTime": now()})));
    let known = [begun.policy.clone(), live(begun.job.clone()), running];
    for (selector, is_selected) in selectors() {
        let facts = Facts {
            network_policies: kept([allow_dns("allow-dns", selector.clone())]),
            ..Facts::default()
        };
        let (decision, status) = begun.among(&facts, &known);
        assert!(matches!(decision.state, State::Begun(..)), "{selector}");
        let (holds, message) = confined(&status);
        assert_eq!(holds, !is_selected, "{selector}: {message}");
        assert_eq!(status.network_policy_enforced, Some(holds), "{selector}");
        assert_eq!(message.contains("allow-dns"), is_selected, "{message}");
        let found = records(&decision.plan);
        assert_eq!(found.len(), usize::from(is_selected), "{selector}");
    }

    let mut changed = allow_dns("allow-dns", json!({}));
    let id = |policy: &NetworkPolicy| {
        let facts = Facts {
            network_policies: kept([policy.clone()]),
            ..Facts::default()
        };
        let (decision, _) = begun.among(&facts, &known);
        records(&decision.plan)[0].id.clone()
    };
    let first = id(&changed);
    assert_eq!(id(&changed), first);
    changed.metadata.generation = Some(2);
    assert_ne!(id(&changed), first);
}

#[test]
fn foreign_label_on_pod_counts_like_label_of_job() {
    let begun = Begun::new();
    let mut labelled = pod(&json!({"phase": "Running", "startTime": now()}));
    labelled["metadata"]["labels"] = json!({"app": "shop"});
    let known = |phase: &str| {
        let mut pod = labelled.clone();
        pod["status"]["phase"] = json!(phase);
        [begun.policy.clone(), live(begun.job.clone()), live(pod)]
    };
    let facts = Facts {
        network_policies: kept([allow_dns("shop", json!({"matchLabels": {"app": "shop"}}))]),
        ..Facts::default()
    };
    assert!(!confined(&begun.among(&facts, &known("Running")).1).0);
    assert!(confined(&begun.among(&facts, &known("Failed")).1).0);
}

#[test]
fn run_that_must_be_confined_ends_when_another_policy_opens_it_and_stays_ended() {
    let mut begun = Begun::new();
    begun.controller.require_confined = true;
    let running = live(pod(&json!({"phase": "Running", "startTime": now()})));
    let known = [begun.policy.clone(), live(begun.job.clone()), running];
    let opened = Facts {
        network_policies: kept([allow_dns("allow-dns", json!({}))]),
        ..Facts::default()
    };
    let (decision, status) = begun.among(&opened, &known);
    let State::Ending(end, _) = &decision.state else {
        panic!("{:?}", decision.state);
    };
    assert_eq!(
        (end.phase, end.reason.as_str()),
        (RunPhase::Cancelled, "NotConfined")
    );
    assert!(end.message.contains("allow-dns"), "{}", end.message);
    assert!(!confined(&status).0);

    begun.run.status = Some(status);
    let (decision, _) = begun.among(&Facts::default(), &known);
    assert!(
        matches!(&decision.state, State::Ending(again, _) if again == end),
        "{:?}",
        decision.state
    );
}

#[test]
fn run_that_must_be_confined_is_refused_where_another_policy_opens_its_pods() {
    for (selector, is_selected) in selectors() {
        for is_required in [false, true] {
            let mut submitted = Submitted::new(json!({}));
            submitted.controller.require_confined = is_required;
            submitted.facts.network_policies = kept([allow_dns("allow-dns", selector.clone())]);
            let Submitted {
                controller,
                run,
                facts,
            } = submitted;
            let Verdict::Decided(decision) = controller.decide(now(), &run, &facts, &[]) else {
                panic!("a question");
            };
            match &decision.state {
                State::Ended(end, ..) if is_required && is_selected => {
                    assert_eq!(
                        (end.phase, end.reason.as_str()),
                        (RunPhase::Failed, "NotConfined")
                    );
                }
                State::Confinable(..) if !(is_required && is_selected) => {
                    // It begins, and that it is open is on record before.
                    let found = records(&decision.plan);
                    assert_eq!(found.len(), usize::from(is_selected), "{selector}");
                }
                other => panic!("{selector}, {is_required}: {other:?}"),
            }
        }
    }
}

#[test]
fn seed_opened_by_another_policy_is_reported_refused_or_ended() {
    let one = workspace(json!([{"url": "https://git.test/a.git"}]));
    let mut controller = seeding::controller();
    let facts = workspace::Facts {
        network_policies: kept([allow_dns("allow-dns", json!({}))]),
        ..workspace::Facts::default()
    };
    let mut running = job(&one);
    running["metadata"]["uid"] = json!("u-5");
    let running = [live(running)];
    for (is_required, known, phase, reason, steps) in [
        (false, &[][..], WorkspacePhase::Seeding, "Seeding", "Job"),
        (false, &running[..], WorkspacePhase::Seeding, "Seeding", ""),
        (true, &[][..], WorkspacePhase::Failed, "NotConfined", ""),
        (
            true,
            &running[..],
            WorkspacePhase::Failed,
            "NotConfined",
            "delete",
        ),
    ] {
        controller.require_confined = is_required;
        let verdict = controller.decide(now(), &one, &facts, known);
        let decision = verdict.decided().unwrap();
        let status = controller.status(now(), &one, &decision, &Outcome::default());
        let ready = conditions::find(&status.conditions, "Ready").unwrap();
        assert_eq!(
            (status.phase, ready.reason.as_str()),
            (Some(phase), reason),
            "{is_required}"
        );
        assert!(
            !conditions::is_true(&status.conditions, "Confined"),
            "{status:?}"
        );
        assert_eq!(records(&decision.plan).len(), 1);
        let makes = |step: &Step| match step {
            Step::Apply(child) => child.resource.kind == "Job" && steps == "Job",
            Step::Delete(it) => it.key().kind == "Job" && steps == "delete",
            _ => false,
        };
        let touches = |step: &Step| match step {
            Step::Apply(child) => child.resource.kind == "Job",
            Step::Delete(_) => true,
            _ => false,
        };
        let all = || decision.plan.stages.iter().flatten();
        assert_eq!(all().any(makes), !steps.is_empty(), "{:?}", decision.plan);
        assert!(!steps.is_empty() || !all().any(touches));
    }
    let verdict = controller.decide(now(), &one, &workspace::Facts::default(), &[]);
    assert!(records(&verdict.decided().unwrap().plan).is_empty());
}

#[test]
fn policy_that_cannot_be_read_opens_every_pod_of_its_namespace() {
    let metadata = allow_dns("broken", json!({})).metadata;
    let begun = Begun::new();
    let facts = Facts {
        network_policies: vec![Arc::new(unreadable(metadata))],
        ..Facts::default()
    };
    let running = live(pod(&json!({"phase": "Running", "startTime": now()})));
    let known = [begun.policy.clone(), live(begun.job.clone()), running];
    assert!(!confined(&begun.among(&facts, &known).1).0);
}

#[test]
fn policy_is_about_one_owner_only_if_it_requires_that() {
    let of = |selector: Value| scope(&allow_dns("it", selector)).unwrap().to_owned();
    let owner = labels::OWNER_UID;
    assert_eq!(of(json!({"matchLabels": {owner: "u-1", "a": "b"}})), "u-1");
    for selector in [
        json!({}),
        json!({"matchLabels": {"a": "b"}}),
        json!({"matchExpressions": [{"key": owner, "operator": "In", "values": ["u-1", "u-2"]}]}),
    ] {
        assert_eq!(of(selector), "birds");
    }
}
