//! A run of a template that requires approvals.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use oz_api::harness::{
    ClusterHarnessTemplate, ClusterHarnessTemplateSpec, HarnessRunStatus, HarnessTemplate,
    RunPhase, TemplateKind, Workspace,
};
use oz_api::{
    AccessRequestApproval, AccessRequestApprovalSpec, AccessRequestReference, ApprovedKind,
    Requester, TicketConfig, conditions, encode, labels,
};
use oz_core::access::policy::{Extra, Judgement, Longest, Refused, Rule, TicketRule};
use oz_core::access::stamp::Stamp;
use oz_core::controller::{Controller as _, Decision, Outcome, Step, Verdict};
use oz_core::kinds::Kind as _;
use oz_core::lifecycle::seal::Keys;
use oz_runs::queue::{has_place, is_held_up, is_queued};
use oz_runs::run::{Question, State};
use oz_trail::Action;
use serde_json::{Value, json};

use crate::runs::{Begun, Submitted, lock};
use crate::{inheriting, now, policy, template};

fn seconds(count: i64) -> Timestamp {
    now() + SignedDuration::from_secs(count)
}

/// A run of a template that bob or carol must approve within ten minutes.
fn submitted() -> Submitted {
    submitted_with(&json!([{"name": "security", "users": ["bob", "carol"]}]))
}

/// A run of a template with these approval rules and a timeout of ten minutes.
fn submitted_with(rules: &Value) -> Submitted {
    let mut submitted = Submitted::new(json!({"reason": "nightly report"}));
    let spec = template(json!({
        "workspace": {"required": false}, "approval": {"rules": rules, "timeout": "10m"},
    }));
    submitted.facts.template = Some(Arc::new(HarnessTemplate::new("parrot", spec)));
    submitted
}

impl Submitted {
    /// Decides about the run, and returns the status after all steps succeeded, or after the first failed.
    fn decided(&self, at: i64, fails: bool) -> (Decision<State>, HarnessRunStatus) {
        let verdict = self
            .controller
            .decide(seconds(at), &self.run, &self.facts, &[]);
        let Verdict::Decided(decision) = verdict else {
            panic!("a question");
        };
        let mut outcome = Outcome::default();
        outcome.failure.clone_from(&decision.plan.obstacle);
        if fails {
            let failure = oz_core::controller::Failure::transient("Unreachable", "no response");
            outcome.failure = Some(failure);
        }
        let status = self
            .controller
            .status(seconds(at), &self.run, &decision, &outcome);
        (decision, status)
    }

    /// Adds the approval or denial of a user, with a stamp as the webhook makes it.
    fn answer(&mut self, user: &str, approval: bool, at: i64) {
        let digest = self.run.status.as_ref().unwrap().approval.as_ref().unwrap();
        let spec = AccessRequestApprovalSpec {
            access_request_ref: AccessRequestReference {
                kind: ApprovedKind::HarnessRun,
                name: "squawk".into(),
                uid: "u-1".into(),
            },
            approval,
            reason: None,
            digest: digest.digest.clone(),
        };
        let stamp = Stamp {
            requester: Requester {
                user: user.into(),
                ..Requester::default()
            },
            kind: AccessRequestApproval::title().into(),
            namespace: "birds".into(),
            name: user.into(),
            spec_digest: encode::digest(&spec),
            at: seconds(at),
            nonce: user.into(),
            ..Stamp::default()
        };
        let sealed = stamp.seal(&Keys::with_every_owner([[7; 32]])).unwrap();
        let mut answer = AccessRequestApproval::new(user, spec);
        answer.metadata = ObjectMeta {
            namespace: Some("birds".into()),
            creation_timestamp: Some(Time(seconds(at))),
            annotations: Some(BTreeMap::from([(labels::REQUESTER.to_owned(), sealed)])),
            ..answer.metadata
        };
        self.facts.approvals.push(answer);
        self.facts.confirmed = Some(Ok(self.facts.approvals.clone()));
    }

    /// Stores the status of a run that waits for approvals.
    fn waits(&mut self) -> Decision<State> {
        let (decision, status) = self.decided(1, false);
        self.run.status = Some(status);
        decision
    }

    fn actions(&self, at: i64) -> Vec<Action> {
        let (decision, _) = self.decided(at, false);
        let steps = decision.plan.stages.into_iter().flatten();
        let records = steps.filter_map(|step| match step {
            Step::Record(record) => Some(record.action),
            _ => None,
        });
        records.collect()
    }
}

fn approved(status: &HarnessRunStatus) -> String {
    let found = conditions::find(&status.conditions, conditions::APPROVED);
    found.map_or_else(String::new, |found| {
        format!("{} {}: {}", found.status, found.reason, found.message)
    })
}

#[test]
fn run_waits_for_approval_and_asks_approvers_once() {
    let mut submitted = submitted();
    let decision = submitted.waits();
    assert_eq!(decision.plan.wake, Some(seconds(600)));
    let status = submitted.run.status.clone().unwrap();
    assert_eq!(status.phase, Some(RunPhase::Pending));
    assert_eq!(
        approved(&status),
        "False Waiting: waiting for security: bob, carol may"
    );
    assert_eq!(status.approval.unwrap().until, seconds(600));
    let records: Vec<_> = decision.plan.steps().cloned().collect();
    let [Step::Record(record)] = records.as_slice() else {
        panic!("{records:?}")
    };
    assert_eq!(record.action, Action::ApprovalRequested);
    assert_eq!(record.user.as_ref().unwrap().user, "ada");
    assert_eq!(record.details["reason"], "nightly report");
    assert_eq!(record.details["approvers"], "security: bob, carol may");
    assert_eq!(submitted.actions(2), []);
}

#[test]
fn approvers_are_asked_while_other_runs_are_before_run() {
    let mut submitted = submitted();
    let limits = policy(
        "limits",
        json!({"grants": {}, "limits": {"concurrentRuns": 1}}),
    );
    submitted.facts.policies = vec![Arc::new(limits)];
    submitted.facts.older = 1;
    let decision = submitted.waits();
    assert!(
        matches!(decision.state, State::Asking(..)),
        "{:?}",
        decision.state
    );
    assert_eq!(decision.plan.wake, Some(seconds(600)));
    assert!(is_held_up(&submitted.run));
    submitted.answer("bob", true, 60);
    // The approval holds for as long as the run waits for the others.
    for at in [70, 700] {
        let (decision, status) = submitted.decided(at, false);
        assert_eq!(waits_approved(&decision.state), Some("TooManyRuns"));
        assert_eq!(
            approved(&status),
            "True Success: Approved by bob (security)"
        );
        submitted.run.status = Some(status);
        assert!(is_queued(&submitted.run) && !is_held_up(&submitted.run));
    }
}

/// Otherwise a run that is not approved would block the workspace for other runs.
#[test]
fn run_has_its_place_on_named_workspace_once_it_is_approved() {
    let mut submitted = submitted();
    submitted.run.spec.workspace_ref = Some("cage".to_owned());
    submitted.stamp(None);
    let free = json!({
        "metadata": {"name": "cage", "namespace": "birds", "uid": "u-2"},
        "spec": {"storage": {"size": "1Gi"}}, "status": {"phase": "Active"},
    });
    let free: Workspace = serde_json::from_value(free).unwrap();
    submitted.facts.workspace = Some(Arc::new(free));
    assert!(!has_place(&submitted.run));
    submitted.waits();
    assert!(!has_place(&submitted.run) && is_held_up(&submitted.run));

    submitted.answer("bob", true, 60);
    let (decision, status) = submitted.decided(70, false);
    assert_eq!(waits_approved(&decision.state), Some("WorkspaceFree"));
    assert_eq!(obstacles(&status), ["WorkspaceBound"]);
    submitted.run.status = Some(status.clone());
    assert!(has_place(&submitted.run) && !is_held_up(&submitted.run));
    // It then waits for the controller of the workspace.
    let (decision, again) = submitted.decided(80, false);
    assert!(
        matches!(&decision.state, State::Approved(state, _) if **state == State::Next),
        "{:?}",
        decision.state
    );
    assert_eq!(again, status);
    // An approval that no longer counts is required again.
    submitted.facts.locks = lock(&json!({"user": "bob"}));
    submitted.waits();
    assert!(!has_place(&submitted.run) && is_held_up(&submitted.run));
}

/// Returns the reason for which a run with its approvals waits.
fn waits_approved(state: &State) -> Option<&'static str> {
    let State::Approved(state, _) = state else {
        return None;
    };
    match &**state {
        State::Waiting(why) => Some(why.reason),
        _ => None,
    }
}

/// Returns the types of the conditions that are False.
fn obstacles(status: &HarnessRunStatus) -> Vec<&str> {
    let conditions = status.conditions.iter();
    let fails = conditions.filter(|condition| condition.status == "False");
    fails.map(|condition| condition.type_.as_str()).collect()
}

#[test]
fn approved_run_reports_its_approvers_and_only_its_present_obstacle() {
    let mut submitted = submitted();
    submitted.facts.broker = None;
    submitted.waits();
    let asks = submitted.run.status.clone().unwrap();
    assert_eq!(obstacles(&asks), ["Approved"]);
    submitted.answer("bob", true, 60);
    let (decision, status) = submitted.decided(70, false);
    assert_eq!(waits_approved(&decision.state), Some("BrokerUnavailable"));
    let expected = "True Success: Approved by bob (security)";
    assert_eq!(approved(&status), expected);
    assert_eq!(obstacles(&status), ["BrokerReady"]);
    assert_eq!(status.phase, Some(RunPhase::Pending));
    // It requires a workspace of its own, which is created in this pass.
    let mut spec = submitted.facts.template.as_ref().unwrap().spec.clone();
    spec.workspace = None;
    let template = HarnessTemplate::new("parrot", spec);
    submitted.facts.template = Some(Arc::new(template));
    submitted.facts.approvals.clear();
    submitted.waits();
    submitted.answer("bob", true, 60);
    let (decision, status) = submitted.decided(80, false);
    let State::Approved(state, _) = &decision.state else {
        panic!("{:?}", decision.state)
    };
    assert_eq!(**state, State::Lacking);
    assert!(
        decision
            .plan
            .steps()
            .any(|step| matches!(step, Step::Apply(_)))
    );
    assert_eq!(approved(&status), expected);
    // An approval that no longer counts is required again.
    submitted.run.status = Some(status);
    submitted.facts.locks = lock(&json!({"user": "bob"}));
    let (_, status) = submitted.decided(90, false);
    assert!(approved(&status).starts_with("False Waiting"));
    assert_eq!(obstacles(&status), ["Approved"]);
}

#[test]
fn run_is_decided_at_its_escalation_which_is_recorded_once() {
    let escalation = json!({"after": "5m", "users": ["dave"]});
    let rule = json!({"name": "security", "users": ["bob"], "escalation": escalation});
    let mut submitted = submitted_with(&json!([rule]));
    let decision = submitted.waits();
    assert_eq!(decision.plan.wake, Some(seconds(300)));
    assert_eq!(submitted.actions(299), []);
    assert_eq!(submitted.actions(300), [Action::ApprovalEscalated]);
    let (decision, status) = submitted.decided(300, false);
    assert_eq!(decision.plan.wake, Some(seconds(600)));
    assert_eq!(status.approval.as_ref().unwrap().escalated, ["security"]);
    submitted.run.status = Some(status);
    assert_eq!(submitted.actions(301), []);
}

#[test]
fn approvers_are_asked_again_after_failed_record() {
    let mut submitted = submitted();
    let (_, status) = submitted.decided(1, true);
    assert_eq!(status.approval, None);
    submitted.run.status = Some(status);
    assert_eq!(submitted.actions(2), [Action::ApprovalRequested]);
}

#[test]
fn approved_run_begins_and_its_record_names_approver() {
    let mut submitted = submitted();
    submitted.waits();
    submitted.answer("bob", true, 60);
    let begun = Begun::after_start_of(submitted);
    let (decision, status) = begun.reported(seconds(70), &begun.live_objects(None));
    assert_eq!(
        approved(&status),
        "True Success: Approved by bob (security)"
    );
    let State::Begun(decided, ..) = decision.state else {
        panic!("{:?}", decision.state)
    };
    let approvals: Vec<_> = decided.approvals.iter().map(|it| &it.user).collect();
    assert_eq!(approvals, ["bob"]);
}

#[test]
fn approval_that_only_watch_has_shown_does_not_begin_run() {
    let mut submitted = submitted();
    submitted.waits();
    submitted.answer("bob", true, 60);
    submitted.facts.confirmed = None;
    let facts = &submitted.facts;
    let verdict = submitted
        .controller
        .decide(seconds(70), &submitted.run, facts, &[]);
    let Verdict::Need { question, .. } = verdict else {
        panic!("no question");
    };
    assert_eq!(question, Question::Approvals);
}

#[test]
fn denied_and_late_runs_fail_without_objects() {
    let mut denied = submitted();
    denied.waits();
    denied.answer("carol", false, 60);
    let mut late = submitted();
    late.waits();
    for (submitted, at, expected) in [
        (denied, 70, "False ApprovalDenied: carol denied it"),
        (
            late,
            601,
            "False ApprovalTimedOut: not approved in time (until 2026-01-31T09:10:00Z): it waited \
             for security: bob, carol may",
        ),
    ] {
        let (_, status) = submitted.decided(at, false);
        assert_eq!(status.phase, Some(RunPhase::Failed), "{expected}");
        assert_eq!(approved(&status), expected);
        assert_eq!(submitted.actions(at), [Action::RequestDenied], "{expected}");
    }
}

#[test]
fn approvals_of_run_are_valid_for_a_day_whatever_it_waits_for() {
    const DAY: i64 = 24 * 60 * 60;
    /// The removal of what a run requires in addition to its approvals.
    type Obstacle = fn(&mut Submitted);
    let obstacles: [(&str, Obstacle); 4] = [
        ("nothing", |_| {}),
        ("its read approvals", |it| it.facts.confirmed = None),
        ("a broker", |it| it.facts.broker = None),
        ("its stamp", |it| it.facts.same_stamp = None),
    ];
    for (name, obstacle) in obstacles {
        let mut submitted = submitted();
        submitted.waits();
        submitted.answer("bob", true, 60);
        submitted.answer("carol", true, 90);
        obstacle(&mut submitted);
        // The first approval suffices: a second one does not extend it.
        let until = 60 + DAY;
        let verdict =
            submitted
                .controller
                .decide(seconds(until - 1), &submitted.run, &submitted.facts, &[]);
        match verdict {
            Verdict::Decided(decision) => {
                let wake = decision.plan.wake;
                match decision.state {
                    State::Approved(..) => assert_eq!(wake, Some(seconds(until)), "{name}"),
                    state => assert!(matches!(state, State::Confinable(..)), "{name}: {state:?}"),
                }
            }
            Verdict::Need { question, .. } => {
                let expected = [Question::Approvals, Question::SameStamp];
                assert!(expected.contains(&question), "{name}: {question:?}");
            }
        }
        let (_, status) = submitted.decided(until, false);
        assert_eq!(status.phase, Some(RunPhase::Failed), "{name}");
        let message = approved(&status);
        let expected = "False ApprovalTimedOut: not granted in time after its last approval";
        assert!(message.starts_with(expected), "{name}: {message}");
        assert_eq!(submitted.actions(until), [Action::RequestDenied], "{name}");
    }
}

#[test]
fn run_without_approvals_waits_for_other_obstacles_without_end() {
    let mut submitted = Submitted::new(json!({}));
    submitted.facts.broker = None;
    let (decision, _) = submitted.decided(100 * 24 * 60 * 60, false);
    assert!(
        matches!(decision.state, State::Waiting(_)),
        "{:?}",
        decision.state
    );
}

#[test]
fn own_approval_and_approval_of_locked_user_do_not_count() {
    let mut own = submitted();
    own.waits();
    own.answer("ada", true, 60);
    let mut locked = submitted();
    locked.waits();
    locked.answer("bob", true, 60);
    locked.facts.locks = lock(&json!({"user": "bob"}));
    for submitted in [own, locked] {
        let (decision, _) = submitted.decided(70, false);
        assert!(
            matches!(decision.state, State::Asking(..)),
            "{:?}",
            decision.state
        );
    }
}

#[test]
fn approval_is_void_after_change_of_template() {
    let mut submitted = submitted();
    submitted.waits();
    submitted.answer("bob", true, 60);
    let mut changed = HarnessTemplate::clone(submitted.facts.template.as_ref().unwrap());
    changed.spec.image = Some("parrot:2".to_owned());
    submitted.facts.template = Some(Arc::new(changed));
    let (_, status) = submitted.decided(70, false);
    let message = approved(&status);
    assert!(
        message.contains("1 given for an earlier content"),
        "{message}"
    );
    assert_eq!(submitted.actions(70), [Action::ApprovalRequested]);
}

/// The webhook and `ozctl approvals` compute the digest from the template that the run names, without a base.
#[test]
fn digest_for_run_of_cluster_template_does_not_depend_on_template_of_namespace() {
    let mut submitted = submitted();
    let spec = submitted.facts.template.as_ref().unwrap().spec.clone();
    let shared = ClusterHarnessTemplate::new("parrot", ClusterHarnessTemplateSpec(spec));
    let shared = Arc::new(shared);
    submitted.run.spec.template_ref.kind = Some(TemplateKind::ClusterHarnessTemplate);
    submitted.stamp(None);
    submitted.facts.cluster_template = Some(shared.clone());
    submitted.facts.template = None;
    let (_, alone) = submitted.decided(1, false);
    assert!(alone.approval.is_some());
    let own = HarnessTemplate::new("parrot", inheriting(json!({})));
    submitted.facts.template = Some(Arc::new(own));
    submitted.facts.base = Some(shared);
    let (_, beside_another) = submitted.decided(1, false);
    assert_eq!(beside_another.approval, alone.approval);
}

/// A run that was stamped with this judgement of the access policies.
fn judged(judgement: Judgement) -> Submitted {
    let mut submitted = Submitted::new(json!({"reason": "nightly report"}));
    submitted.stamp(Some(judgement));
    submitted
}

#[test]
fn run_is_denied_by_template_for_which_access_policies_were_not_evaluated() {
    type Change = fn(&mut HarnessTemplate, &mut ClusterHarnessTemplate);
    let changes: [(&str, Change); 6] = [
        ("nothing", |_, _| {}),
        ("a label", |own, _| {
            own.metadata.labels = Some(BTreeMap::from([("tier".into(), "prod".into())]));
        }),
        ("an annotation", |own, _| {
            own.metadata.annotations = Some(BTreeMap::from([("a".into(), "b".into())]));
        }),
        ("another of its name", |own, _| {
            own.metadata.uid = Some("other".into())
        }),
        ("the spec", |own, _| own.spec.harness = Some("other".into())),
        ("the base", |_, base| {
            base.spec.0.image = Some("parrot:2".into())
        }),
    ];
    for (what, change) in changes {
        let mut own = HarnessTemplate::new("parrot", inheriting(json!({})));
        let base = template(json!({"workspace": {"required": false}}));
        let seen = oz_runs::template::seen(&own.metadata, &own.spec, Some(&base));
        let mut base = ClusterHarnessTemplate::new("base", ClusterHarnessTemplateSpec(base));
        change(&mut own, &mut base);
        let judgement = |asked| Judgement {
            asked,
            template: Some(seen.clone()),
            ..Judgement::default()
        };
        let mut submitted = judged(judgement(1));
        submitted.facts.template = Some(Arc::new(own));
        submitted.facts.base = Some(Arc::new(base));
        match submitted.decided(1, false).0.state {
            State::Confinable(..) => assert_eq!(what, "nothing"),
            State::Ended(end, ..) => assert_eq!(end.reason, "PolicyOutdated", "{what}"),
            state => panic!("{what}: {state:?}"),
        }
        // Without access policies a change of the template is permitted, as before.
        submitted.stamp(Some(judgement(0)));
        let state = submitted.decided(1, false).0.state;
        assert!(matches!(state, State::Confinable(..)), "{what}: {state:?}");
    }
}

#[test]
fn access_policies_deny_shorten_and_require_approval() {
    let refused = Refused {
        policy: "nights".into(),
        failed: false,
        message: "AccessPolicy nights denies runs at night".into(),
    };
    let denied = judged(Judgement {
        refused: Some(refused),
        ..Judgement::default()
    });
    let (_, status) = denied.decided(1, false);
    assert_eq!(status.phase, Some(RunPhase::Failed));
    assert_eq!(denied.actions(1), [Action::RequestDenied]);

    let longest = |duration: &str| Judgement {
        longest: Some(Longest {
            policy: "short".into(),
            duration: duration.into(),
        }),
        ..Judgement::default()
    };
    let begun = Begun::after_start_of(judged(longest("2m")));
    let (decision, _) = begun.reported(seconds(1), &begun.live_objects(None));
    let State::Begun(decided, ..) = decision.state else {
        panic!("{:?}", decision.state)
    };
    assert_eq!(decided.timeout_seconds, Some(120));
    let (_, status) = judged(longest("0s")).decided(1, false);
    assert_eq!(status.phase, Some(RunPhase::Failed));

    let rule = Rule {
        name: "nights/security".into(),
        groups: Vec::new(),
        users: vec!["bob".into()],
        approvals: 1,
        silent: false,
        unless: Vec::new(),
        escalation: None,
    };
    let asks = judged(Judgement {
        approval: Some(Extra {
            rules: vec![rule],
            timeout: "5m".into(),
            require_reason: false,
        }),
        ..Judgement::default()
    });
    let (_, status) = asks.decided(1, false);
    assert_eq!(
        approved(&status),
        "False Waiting: waiting for nights/security: bob may"
    );
    assert_eq!(status.approval.unwrap().until, seconds(300));

    let ticket = judged(Judgement {
        tickets: vec![TicketRule {
            policy: "change".into(),
            ticket: TicketConfig::default(),
        }],
        ..Judgement::default()
    });
    let (_, status) = ticket.decided(1, false);
    assert_eq!(status.phase, Some(RunPhase::Failed));
}
