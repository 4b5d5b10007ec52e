//! The writes before the pod of a run starts, and their order: as few as possible, and none that may be lost.

use jiff::{SignedDuration, Timestamp};
use oz_api::conditions;
use oz_api::harness::{HarnessRunStatus, RunPhase};
use oz_core::controller::{Controller as _, Decision, Live, Outcome, Step, Verdict};
use oz_runs::run::{Facts, State};
use serde_json::{Value, json};

use crate::now;
use crate::runs::{Begun, Submitted};
use crate::world::live;

fn seconds(count: i64) -> Timestamp {
    now() + SignedDuration::from_secs(count)
}

impl Begun {
    /// Returns the decision of a process that has created the Job, and the resulting status.
    pub(crate) fn reported(
        &self,
        at: Timestamp,
        known: &[Live],
    ) -> (Decision<State>, HarnessRunStatus) {
        let facts = Facts {
            job_made: true,
            ..Facts::default()
        };
        let Verdict::Decided(decision) = self.controller.decide(at, &self.run, &facts, known)
        else {
            panic!("a question");
        };
        let outcome = Outcome {
            live: known.to_vec(),
            ..Outcome::default()
        };
        let status = self.controller.status(at, &self.run, &decision, &outcome);
        (decision, status)
    }

    pub(crate) fn live_objects(&self, pod: Option<Value>) -> Vec<Live> {
        let mut known = vec![self.policy.clone(), live(self.job.clone())];
        known.extend(pod.map(live));
        known
    }
}

/// A pod of the run's Job.
pub(crate) fn pod(status: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "squawk-0", "namespace": "birds", "uid": "u-10", "creationTimestamp": now(),
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "squawk", "uid": "u-9", "controller": true,
            }],
        },
        "spec": {"containers": [{"name": "agent", "image": "registry.test/parrot:1"}]},
        "status": status,
    })
}

#[test]
fn run_is_recorded_and_confined_before_its_job_after_any_crash() {
    let Submitted {
        controller,
        run,
        facts,
    } = Submitted::new(json!({}));
    let stages = |known: &[Live]| {
        let Verdict::Decided(decision) = controller.decide(now(), &run, &facts, known) else {
            panic!("a question");
        };
        let name = |step: &Step| match step {
            Step::Record(record) => format!("{} {}", record.action, record.id),
            Step::Apply(child) => child.resource.kind.clone(),
            other => panic!("{other:?}"),
        };
        let names = decision.plan.stages.iter();
        let names: Vec<Vec<String>> = names
            .map(|stage| stage.iter().map(name).collect())
            .collect();
        (names, decision.plan.again)
    };

    let (first, again) = stages(&[]);
    let [confining] = first.as_slice() else {
        panic!("{first:?}");
    };
    let [record, policy] = confining.as_slice() else {
        panic!("{confining:?}");
    };
    assert!(record.starts_with("RunStarted "), "{record}");
    assert_eq!((policy.as_str(), again), ("NetworkPolicy", true));

    // Where the NetworkPolicy is, the record need not be: the same comes before the Job again.
    let (second, again) = stages(&[Begun::new().policy]);
    assert_eq!(second, [vec![record.clone()], vec!["Job".to_owned()]]);
    assert!(!again);
}

#[test]
fn pod_that_starts_at_once_is_reported_in_single_status() {
    let begun = Begun::new();
    let (decision, status) = begun.reported(seconds(1), &begun.live_objects(None));
    assert_eq!(status, HarnessRunStatus::default());
    assert_eq!(decision.plan.wake, Some(seconds(2)));

    let pending = pod(&json!({"phase": "Pending"}));
    let (_, status) = begun.reported(seconds(1), &begun.live_objects(Some(pending)));
    assert_eq!(status, HarnessRunStatus::default());

    let running = pod(&json!({"phase": "Running", "startTime": seconds(1)}));
    let (_, status) = begun.reported(seconds(1), &begun.live_objects(Some(running)));
    assert_eq!(status.phase, Some(RunPhase::Running));
    assert_eq!(status.job_name.as_deref(), Some("squawk"));
    for type_ in ["TemplateResolved", "JobCreated", "PodReady"] {
        assert!(conditions::is_true(&status.conditions, type_), "{type_}");
    }
    let told = begun.controller.transitions(&begun.run, None, &status);
    let told: Vec<_> = told
        .iter()
        .map(|event| (event.reason, &*event.note))
        .collect();
    assert_eq!(
        told,
        [("JobCreated", "Job squawk was created, and the agent runs")]
    );
}

#[test]
fn slow_pod_is_reported_after_two_seconds() {
    let begun = Begun::new();
    let (_, status) = begun.reported(seconds(2), &begun.live_objects(None));
    assert_eq!(status.phase, Some(RunPhase::Pending));
    assert_eq!(status.job_name.as_deref(), Some("squawk"));
    assert!(conditions::is_true(&status.conditions, "JobCreated"));
    assert!(!conditions::is_true(&status.conditions, "PodReady"));
}

#[test]
fn job_of_another_process_is_reported_at_once() {
    let begun = Begun::new();
    let known = begun.live_objects(None);
    let decided = begun
        .controller
        .decide(seconds(1), &begun.run, &Facts::default(), &known);
    let Verdict::Decided(decision) = decided else {
        panic!("a question");
    };
    let outcome = Outcome {
        live: known,
        ..Outcome::default()
    };
    let status = begun
        .controller
        .status(seconds(1), &begun.run, &decision, &outcome);
    assert_eq!(status.job_name.as_deref(), Some("squawk"));
}

#[test]
fn job_deleted_before_first_report_is_not_recreated() {
    let begun = Begun::new();
    let (decision, status) = begun.reported(seconds(1), std::slice::from_ref(&begun.policy));
    let looks = |step: &Step| matches!(step, Step::Look(sought) if sought.resource.kind == "Job");
    assert!(decision.plan.steps().any(looks), "{:?}", decision.plan);
    assert!(
        !decision
            .plan
            .steps()
            .any(|step| matches!(step, Step::Apply(_)))
    );
    assert_eq!(status.phase, Some(RunPhase::Cancelled));
    let completed = conditions::find(&status.conditions, "Completed").unwrap();
    assert_eq!(completed.reason, "JobDeleted");
}
