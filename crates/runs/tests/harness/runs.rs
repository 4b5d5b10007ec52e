//! Assessment of a run by its existing objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use oz_api::harness::{
    ClusterHarnessTemplate, ClusterHarnessTemplateSpec, HarnessRun, HarnessTemplate, RunPhase,
};
use oz_api::{Requester, labels};
use oz_core::access::lock::Locks;
use oz_core::access::policy::Judgement;
use oz_core::access::stamp::Stamp;
use oz_core::controller::{Controller as _, Decision, Live, Step, Verdict};
use oz_core::lifecycle::seal::Keys;
use oz_runs::objects::{Broker, KIND};
use oz_runs::run::{Facts, Question, Runs, State, spec_digest};
use oz_trail::Action;
use serde_json::{Value, json};

use crate::world::{broker, live, run, settings};
use crate::{inheriting, now, template};

/// A run with a Job that was created at [`now`], and its other objects.
pub(crate) struct Begun {
    pub(crate) controller: Runs,
    pub(crate) run: HarnessRun,
    pub(crate) policy: Live,
    pub(crate) job: Value,
    pub(crate) locks: Locks,
}

/// A run that was submitted at [`now`], with its controller and facts.
pub(crate) struct Submitted {
    pub(crate) controller: Runs,
    pub(crate) run: HarnessRun,
    pub(crate) facts: Facts,
}

impl Submitted {
    pub(crate) fn new(fields: Value) -> Self {
        let keys = Keys::with_every_owner([[7; 32]]);
        let labels = BTreeMap::from([("app".to_owned(), "oz-broker".to_owned())]);
        let controller = Runs {
            keys: keys.clone(),
            settings: settings(),
            broker: Broker {
                namespace: "oz-system".to_owned(),
                labels,
                port: 8443,
            },
            pod_ready_timeout: SignedDuration::from_mins(5),
            require_confined: false,
        };
        let mut run = run(fields);
        run.metadata.creation_timestamp = Some(now().into());
        let parrot = template(json!({"workspace": {"required": false}}));
        let facts = Facts {
            template: Some(Arc::new(HarnessTemplate::new("parrot", parrot))),
            broker: Some(Arc::new(broker())),
            same_stamp: Some(None),
            ..Facts::default()
        };
        let mut submitted = Self {
            controller,
            run,
            facts,
        };
        submitted.stamp(None);
        submitted
    }

    /// Stamps the run, with this judgement of the access policies.
    pub(crate) fn stamp(&mut self, judgement: Option<Judgement>) {
        let stamp = Stamp {
            requester: Requester {
                user: "ada".to_owned(),
                groups: vec!["keepers".to_owned()],
                ..Requester::default()
            },
            kind: KIND.to_owned(),
            namespace: "birds".to_owned(),
            name: "squawk".to_owned(),
            spec_digest: spec_digest(&self.run),
            at: now(),
            nonce: "nonce".to_owned(),
            judgement,
            ..Stamp::default()
        };
        let sealed = stamp.seal(&self.controller.keys).unwrap();
        let annotations = BTreeMap::from([(labels::REQUESTER.to_owned(), sealed)]);
        self.run.metadata.annotations = Some(annotations);
    }
}

impl Begun {
    pub(crate) fn new() -> Self {
        Self::after_start_of(Submitted::new(json!({})))
    }

    /// A run that was submitted, after its first two passes.
    pub(crate) fn after_start_of(submitted: Submitted) -> Self {
        let Submitted {
            controller,
            run,
            facts,
        } = submitted;
        let applied = |known: &[Live]| {
            let Verdict::Decided(decision) = controller.decide(now(), &run, &facts, known) else {
                panic!("a question");
            };
            let mut steps = decision.plan.stages.into_iter().flatten();
            let applied = steps.find_map(|step| match step {
                Step::Apply(child) => Some(child),
                _ => None,
            });
            let child = applied.unwrap_or_else(|| panic!("nothing is made: {:?}", decision.state));
            let mut object = serde_json::to_value(child.object).unwrap();
            object["metadata"]["uid"] = json!("u-9");
            object
        };
        let policy = live(applied(&[]));
        let job = applied(std::slice::from_ref(&policy));
        Self {
            controller,
            run,
            policy,
            job,
            locks: Locks::default(),
        }
    }

    /// Returns the state so many seconds after the start of the Job, with the counts of the Job and the phases of the
    /// observed pods.
    fn after(
        &self,
        seconds: i64,
        counted: [i64; 3],
        phases: &[&str],
        hidden_pod: Option<bool>,
    ) -> Result<State, Question> {
        let [active, succeeded, failed] = counted;
        let status = json!({
            "startTime": now(), "active": active, "succeeded": succeeded, "failed": failed,
        });
        let decided = self.decided_after(seconds, status, phases, hidden_pod);
        decided.map(|decision| decision.state)
    }

    /// Returns the decision of the same assessment, with the status of the Job.
    fn decided_after(
        &self,
        seconds: i64,
        status: Value,
        phases: &[&str],
        hidden_pod: Option<bool>,
    ) -> Result<Decision<State>, Question> {
        let mut job = self.job.clone();
        job["status"] = status;
        let pods = phases.iter().enumerate().map(|(number, phase)| {
            let name = format!("squawk-{number}");
            live(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": "birds", "uid": name,
                    "ownerReferences": [{
                        "apiVersion": "batch/v1", "kind": "Job", "name": "squawk", "uid": "u-9", "controller": true,
                    }],
                },
                "status": {"phase": phase},
            }))
        });
        let known: Vec<Live> = [self.policy.clone(), live(job)]
            .into_iter()
            .chain(pods)
            .collect();
        let facts = Facts {
            hidden_pod,
            locks: self.locks.clone(),
            ..Facts::default()
        };
        let then = now() + SignedDuration::from_secs(seconds);
        match self.controller.decide(then, &self.run, &facts, &known) {
            Verdict::Decided(decision) => Ok(decision),
            Verdict::Need { question, .. } => Err(question),
        }
    }

    /// Returns the instant of the next check of the pod.
    fn looked_at(state: &Result<State, Question>) -> Option<Timestamp> {
        match state {
            Ok(State::Begun(_, pending, ..)) => pending.ready_until,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_pod_that_is_not_seen_is_looked_for_before_it_is_held_against_the_run() {
    let begun = Begun::new();
    let at = |seconds| now() + SignedDuration::from_secs(seconds);

    let fresh = begun.after(1, [1, 0, 0], &[], None);
    assert_eq!(Begun::looked_at(&fresh), Some(at(10)));
    assert_eq!(
        begun.after(10, [1, 0, 0], &[], None),
        Err(Question::HiddenPod)
    );
    let not_found = begun.after(10, [1, 0, 0], &[], Some(false));
    assert_eq!(Begun::looked_at(&not_found), Some(at(20)));
    // A pod that failed was seen; the one after it is not.
    assert_eq!(
        begun.after(60, [1, 0, 1], &["Failed"], None),
        Err(Question::HiddenPod)
    );
    match begun.after(10, [1, 0, 0], &[], Some(true)) {
        Ok(State::Ending(end, _)) => assert_eq!(end.reason, "DriftDetected"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn run_sealed_by_earlier_release_is_cancelled_as_retired() {
    let mut begun = Begun::new();
    let retired = |text: &str| text.replacen("\"sig\":", "\"mac\":", 1);
    let annotations = begun.policy.object.metadata.annotations.as_mut().unwrap();
    let text = annotations.get_mut(labels::GRANT).unwrap();
    *text = retired(text);
    let text = &mut begun.job["metadata"]["annotations"][labels::GRANT];
    *text = json!(retired(text.as_str().unwrap()));
    match begun.after(1, [1, 0, 0], &["Running"], None) {
        Ok(State::Ending(end, None)) => assert_eq!(end.reason, "SealRetired"),
        other => panic!("{other:?}"),
    }
    // When nothing runs any more, that is put on record.
    begun.run.status = Some(serde_json::from_value(json!({
        "phase": "Running", "jobName": "squawk",
        "conditions": [{
            "type": "Completed", "status": "False", "reason": "SealRetired", "message": "it was",
            "lastTransitionTime": now(),
        }],
    }))
    .unwrap());
    let known = [begun.policy.clone()];
    let facts = Facts::default();
    let decided = begun.controller.decide(now(), &begun.run, &facts, &known);
    let Verdict::Decided(decision) = decided else {
        panic!("a question");
    };
    let steps: Vec<&Step> = decision.plan.stages.iter().flatten().collect();
    let recorded = steps.iter().find_map(|step| match step {
        Step::Record(record) => Some((record.action, record.reason.as_str())),
        _ => None,
    });
    assert_eq!(recorded, Some((Action::RunEnded, "SealRetired")));
}

#[test]
fn a_pod_that_has_ended_is_not_hidden_before_its_job_counts_it() {
    let begun = Begun::new();
    for phases in [["Succeeded"], ["Failed"]] {
        let ended = begun.after(60, [1, 0, 0], &phases, None);
        assert_eq!(Begun::looked_at(&ended), None);
    }
}

/// No event follows the deletion of the Job by the operator, nor the deletion of a pod that lost its labels.
#[test]
fn ending_run_is_requeued_after_deletion_of_its_job() {
    let begun = Begun::new();
    let status = json!({"startTime": now(), "active": 1});
    let decision = begun.decided_after(10, status, &[], Some(true)).unwrap();
    assert!(matches!(decision.state, State::Ending(..)), "{decision:?}");
    let again = now() + SignedDuration::from_secs(11);
    assert_eq!(decision.plan.wake, Some(again));
}

/// The Job controller may count the pod that was ended as failed before its own clock says that the time is over.
#[test]
fn run_with_failing_pod_during_end_keeps_cause_of_end() {
    let mut begun = Begun::new();
    let failed = json!({"startTime": now(), "failed": 1, "conditions": [{
        "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": now(),
    }]});
    let ended = |begun: &Begun| {
        let decision = begun.decided_after(3601, failed.clone(), &[], None);
        match decision.map(|decision| decision.state) {
            Ok(State::Ended(end, ..)) => (end.phase, end.reason),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ended(&begun), (RunPhase::Failed, "AgentFailed".to_owned()));

    for (reason, phase) in [
        ("DeadlineExceeded", RunPhase::Failed),
        ("PodNotStarted", RunPhase::Failed),
        ("DriftDetected", RunPhase::Cancelled),
        ("JobDeleted", RunPhase::Cancelled),
    ] {
        let status = json!({"phase": "Running", "jobName": "squawk", "conditions": [{
            "type": "Completed", "status": "False", "reason": reason, "message": "it is being ended",
            "lastTransitionTime": now(),
        }]});
        begun.run.status = Some(serde_json::from_value(status).unwrap());
        assert_eq!(ended(&begun), (phase, reason.to_owned()));
    }
}

#[test]
fn run_does_not_begin_by_template_or_base_that_is_being_deleted() {
    for deleted in ["none", "template", "base"] {
        let mut own = HarnessTemplate::new("parrot", inheriting(json!({})));
        let base = ClusterHarnessTemplateSpec(template(json!({"workspace": {"required": false}})));
        let mut base = ClusterHarnessTemplate::new("base", base);
        match deleted {
            "template" => own.metadata.deletion_timestamp = Some(now().into()),
            "base" => base.metadata.deletion_timestamp = Some(now().into()),
            _ => {}
        }
        let mut submitted = Submitted::new(json!({}));
        submitted.facts.template = Some(Arc::new(own));
        submitted.facts.base = Some(Arc::new(base));
        let Submitted {
            controller,
            run,
            facts,
        } = submitted;
        let decision = controller.decide(now(), &run, &facts, &[]);
        match decision.decided().unwrap().state {
            State::Confinable(..) => assert_eq!(deleted, "none"),
            State::Waiting(why) => {
                assert_ne!(deleted, "none");
                assert_eq!(why.reason, "TemplateNotFound", "{deleted}");
            }
            state => panic!("{deleted}: {state:?}"),
        }
    }
}

/// A user who applies manifests in any order has a minute to apply the last of them.
#[test]
fn a_template_that_never_comes_is_waited_for_until_the_minute_is_over() {
    let mut waits = Submitted::new(json!({}));
    waits.facts.template = None;
    let at = |after: SignedDuration| {
        let Submitted {
            controller,
            run,
            facts,
        } = &waits;
        match controller.decide(now() + after, run, facts, &[]) {
            Verdict::Decided(decision) => decision,
            Verdict::Need { question, .. } => panic!("{question:?}"),
        }
    };
    let (minute, moment) = (SignedDuration::from_mins(1), SignedDuration::from_nanos(1));
    for after in [SignedDuration::ZERO, minute - moment] {
        let decision = at(after);
        let state = &decision.state;
        assert!(
            matches!(state, State::Waiting(why) if why.reason == "TemplateNotFound"),
            "{state:?}"
        );
        assert_eq!(decision.plan.wake, Some(now() + minute));
    }
    match at(minute).state {
        State::Ended(end, ..) => {
            assert_eq!(
                (end.phase, end.reason.as_str()),
                (RunPhase::Failed, "TemplateNotFound")
            );
            assert!(
                end.message.ends_with("create it and submit the run again"),
                "{}",
                end.message
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_next_waiting_runs_report_change_of_workspace_holder() {
    let mut waits = Submitted::new(json!({"workspaceRef": "cage"}));
    let mut told = |holder: usize, ahead: usize| {
        let workspace = json!({
            "metadata": {"name": "cage", "namespace": "birds", "uid": "u-2"},
            "spec": {"storage": {"size": "1Gi"}},
            "status": {"phase": "Active", "activeRunRef": format!("run-{holder}"), "activeRunUID": "u-3"},
        });
        waits.facts.workspace = Some(Arc::new(serde_json::from_value(workspace).unwrap()));
        waits.facts.ahead = ahead;
        let Submitted {
            controller,
            run,
            facts,
        } = &waits;
        match controller.decide(now(), run, facts, &[]) {
            Verdict::Decided(Decision {
                state: State::Waiting(why),
                ..
            }) => why.message,
            other => panic!("{other:?}"),
        }
    };
    let mut messages: Vec<String> = (0..250).map(|holder| told(holder, 249 - holder)).collect();
    messages.dedup();
    assert_eq!(
        messages,
        [
            "Workspace cage is in use; 51 to 250 runs wait before it",
            "Workspace cage is in use; 11 to 50 runs wait before it",
            "Workspace cage is in use; 6 to 10 runs wait before it",
            "Workspace cage is used by run-244; 5 runs wait before it",
            "Workspace cage is used by run-245; 4 runs wait before it",
            "Workspace cage is used by run-246; 3 runs wait before it",
            "Workspace cage is used by run-247; 2 runs wait before it",
            "Workspace cage is used by run-248; 1 run waits before it",
            "Workspace cage is used by run-249; no other run waits before it",
        ]
    );
}

pub(crate) fn lock(target: &Value) -> Locks {
    let lock = serde_json::from_value(json!({
        "metadata": {"name": "incident-7"},
        "spec": {"target": target, "reason": "stolen laptop"},
    }));
    Locks {
        all: vec![Arc::new(lock.unwrap())],
        unreadable: 0,
    }
}

/// Targets of a lock, and whether it blocks the run of template parrot in birds by ada, a member of the group keepers.
fn locked() -> [(Value, bool); 7] {
    let template = |name: &str| json!({"template": {"namespace": "birds", "name": name}});
    [
        (json!({"user": "ada"}), true),
        (json!({"group": "keepers"}), true),
        (json!({"namespace": "birds"}), true),
        (template("parrot"), true),
        (json!({"user": "bob"}), false),
        (json!({"namespace": "fish"}), false),
        (template("crow"), false),
    ]
}

#[test]
fn a_lock_ends_a_run_that_has_begun_and_it_stays_ended_when_the_lock_is_gone() {
    for (target, is_about) in locked() {
        let mut begun = Begun::new();
        begun.locks = lock(&target);
        let state = begun.after(5, [1, 0, 0], &["Running"], None).unwrap();
        let end = match state {
            State::Ending(end, _) => end,
            State::Begun(..) if !is_about => continue,
            other => panic!("{target}: {other:?}"),
        };
        assert!(is_about, "{target}");
        assert_eq!(
            (end.phase, end.reason.as_str()),
            (RunPhase::Cancelled, "Locked")
        );
        assert!(
            end.message.contains("AccessLock incident-7: stolen laptop"),
            "{}",
            end.message
        );
        // Its status tells of the end that has begun.
        begun.locks = Locks::default();
        begun.run.status = serde_json::from_value(json!({"jobName": "squawk", "conditions": [{
            "type": "Completed", "status": "False", "reason": "Locked", "message": end.message,
            "lastTransitionTime": now(),
        }]}))
        .unwrap();
        match begun.after(6, [1, 0, 0], &["Running"], None) {
            Ok(State::Ending(again, _)) => assert_eq!(again, end),
            other => panic!("{target}: {other:?}"),
        }
    }
}

/// A reason, the seconds after the start of the Job, and the change that causes the end.
type Cause = (&'static str, i64, fn(&mut Begun));

#[test]
fn first_of_two_ends_of_run_applies() {
    let causes: [Cause; 5] = [
        ("Deleted", 5, |begun| {
            begun.run.metadata.deletion_timestamp = Some(now().into());
        }),
        ("DeadlineExceeded", 7200, |_| {}),
        ("Locked", 5, |begun| {
            begun.locks = lock(&json!({"user": "ada"}));
        }),
        ("JobDeleted", 5, |begun| {
            begun.job["metadata"]["name"] = json!("other");
        }),
        ("DriftDetected", 5, |begun| {
            begun.run.spec.prompt = Some("bye".to_owned());
        }),
    ];
    for (place, (reason, seconds, cause)) in causes.iter().enumerate() {
        for (other, at, change) in &causes[place..] {
            // Without its Job a run has no deadline.
            let expected = match (*reason, *other) {
                ("DeadlineExceeded", "JobDeleted") => "JobDeleted",
                (reason, _) => reason,
            };
            let mut begun = Begun::new();
            cause(&mut begun);
            change(&mut begun);
            let seconds = *seconds.max(at);
            match begun.after(seconds, [1, 0, 0], &["Running"], Some(false)) {
                Ok(State::Ending(end, _)) => assert_eq!(end.reason, expected, "{reason} + {other}"),
                state => panic!("{reason} + {other}: {state:?}"),
            }
        }
    }
}

#[test]
fn a_lock_refuses_a_run_that_has_not_begun_and_one_that_cannot_be_read_holds_it_back() {
    for (target, is_about) in locked() {
        let mut submitted = Submitted::new(json!({}));
        submitted.facts.locks = lock(&target);
        let Submitted {
            controller,
            run,
            facts,
        } = submitted;
        let Verdict::Decided(decision) = controller.decide(now(), &run, &facts, &[]) else {
            panic!("a question");
        };
        match decision.state {
            State::Ended(end, ..) if is_about => {
                assert_eq!(
                    (end.phase, end.reason.as_str()),
                    (RunPhase::Failed, "Locked")
                );
            }
            State::Confinable(..) if !is_about => {}
            other => panic!("{target}: {other:?}"),
        }
    }
    let mut submitted = Submitted::new(json!({}));
    submitted.facts.locks.unreadable = 1;
    let Submitted {
        controller,
        run,
        facts,
    } = submitted;
    match controller.decide(now(), &run, &facts, &[]) {
        Verdict::Decided(decision) => match decision.state {
            State::Waiting(failure) => assert_eq!(failure.reason, "LockUnreadable"),
            other => panic!("{other:?}"),
        },
        Verdict::Need { .. } => panic!("a question"),
    }
}

#[test]
fn pass_over_a_run_without_identity_fails_and_makes_nothing() {
    type Change = fn(&mut HarnessRun);
    let cases: [(Change, &str); 4] = [
        (|it| it.metadata.name = None, "metadata.name"),
        (|it| it.metadata.namespace = None, "metadata.namespace"),
        (|it| it.metadata.uid = None, "metadata.uid"),
        (
            |it| it.metadata.creation_timestamp = None,
            "metadata.creationTimestamp",
        ),
    ];
    for (change, field) in cases {
        let mut submitted = Submitted::new(json!({}));
        change(&mut submitted.run);
        let Submitted {
            controller,
            run,
            facts,
        } = submitted;
        let decision = controller.decide(now(), &run, &facts, &[]);
        let decision = decision.decided().unwrap();
        assert!(decision.plan.stages.is_empty(), "{field}");
        assert!(
            matches!(&decision.state, State::Waiting(why) if why.message.contains(field)),
            "{field}: {:?}",
            decision.state
        );
    }
}
