//! The status of a run after a plan was carried out, up to the first failure.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::conditions;
use oz_api::harness::{HarnessRun, HarnessRunStatus, RunCredential, RunPhase};
use oz_core::access::approval;
use oz_core::access::status::Fact;
use oz_core::controller::{Failure, Outcome, Transition};
use oz_core::lifecycle::window::has_come;

use super::Runs;
use super::decided::Decided;
use super::existing::{COMPLETED, NOT_OVER, RunEnd, Seen};
use super::facts::State;
use super::grants::Granted;
use super::terms;
use crate::isolation::{CONFINED, NOT_CONFINED, unconfined};
use crate::jobs::{has_started, obstacle, told_from};
use crate::requires::destination;
use crate::stored::StoredObject;

/// Condition: the template is resolved.
pub(crate) const TEMPLATE_RESOLVED: &str = "TemplateResolved";
/// Condition: the approvals that the template requires are given.
const APPROVED: &str = conditions::APPROVED;
/// Condition: the run holds its workspace.
pub(crate) const WORKSPACE_BOUND: &str = "WorkspaceBound";
/// Condition: the source of the prompt is resolved.
const PROMPT_RESOLVED: &str = "PromptResolved";
/// Condition: a broker is available.
pub(crate) const BROKER_READY: &str = "BrokerReady";
/// Condition: the run has the credentials that its template requires.
pub(crate) const CREDENTIALS_READY: &str = "BrokerCredentialsReady";
/// Condition: the run reaches the hosts that its template requires, and no others.
const EGRESS_CONFIGURED: &str = "EgressConfigured";
/// Condition: the Job exists.
pub(crate) const JOB_CREATED: &str = "JobCreated";
/// Condition: the agent runs.
const POD_READY: &str = "PodReady";

/// Reason of [`CREDENTIALS_READY`] and [`EGRESS_CONFIGURED`]: the policies no longer grant the access with which the
/// run began.
const REVOKED: &str = "PolicyRevoked";

/// Reason of [`POD_READY`]: an obstacle prevents the start of the pod.
const NOT_STARTED: &str = "NotStarted";

/// Reasons of waiting that concern the template.
const OF_TEMPLATE: [&str; 6] = [
    "TemplateNotFound",
    "TemplateInvalid",
    "Invalid",
    "PolicyMissing",
    "PolicyNotVerified",
    "EmergencyConfigInvalid",
];

struct Conditions<'a> {
    status: &'a mut HarnessRunStatus,
    generation: Option<i64>,
    now: Timestamp,
}

impl Conditions<'_> {
    fn set(&mut self, type_: &str, holds: bool, reason: &str, message: impl Into<String>) {
        let conditions = &mut self.status.conditions;
        conditions::set(
            conditions,
            type_,
            holds,
            reason,
            message,
            self.generation,
            self.now,
        );
    }

    fn found(&mut self, fact: Fact) {
        self.set(fact.type_, fact.holds, fact.reason, fact.message);
    }

    fn confined(&mut self, found: Fact) {
        self.status.network_policy_enforced = Some(found.holds);
        self.found(found);
    }

    /// Sets the conditions for the credentials and hosts of a run, and for those that its policies no longer grant.
    /// If this is unknown, the earlier condition stays.
    fn granted(&mut self, decided: &Decided, granted: Option<&Granted>) {
        let is_known = |type_| conditions::find(&self.status.conditions, type_).is_some();
        let known = [CREDENTIALS_READY, EGRESS_CONFIGURED].map(is_known);
        let (lost_credentials, lost_hosts) = granted.map_or((&[][..], &[][..]), |granted| {
            (&granted.lost_credentials[..], &granted.lost_hosts[..])
        });
        if !decided.credentials.is_empty() && (granted.is_some() || !known[0]) {
            let names: Vec<&str> = decided
                .credentials
                .iter()
                .map(|it| it.name.as_str())
                .collect();
            match lost_credentials.is_empty() {
                true => self.set(CREDENTIALS_READY, true, "Granted", names.join(", ")),
                false => self.set(
                    CREDENTIALS_READY,
                    false,
                    REVOKED,
                    lost_credentials.join("; "),
                ),
            }
            self.status.credentials = match granted {
                Some(granted) => granted.credentials.clone(),
                None => decided
                    .credentials
                    .iter()
                    .map(RunCredential::from)
                    .collect(),
            };
        }
        if !decided.intercepted {
            let message = "the run can reach the broker only";
            self.set(EGRESS_CONFIGURED, true, "Closed", message);
        } else if !lost_hosts.is_empty() {
            let lost: Vec<String> = lost_hosts.iter().map(destination).collect();
            let message = format!(
                "no verified BrokerPolicy grants {} any more",
                lost.join(", ")
            );
            self.set(EGRESS_CONFIGURED, false, REVOKED, message);
        } else if granted.is_some() || !known[1] {
            self.set(EGRESS_CONFIGURED, true, "Granted", hosts(decided));
        }
    }

    /// Sets the conditions of the change ticket and of the emergency of a run.
    fn declared(&mut self, decided: &Decided) {
        for fact in terms::facts(decided) {
            self.found(fact);
        }
    }

    /// Sets the condition because of which a run ends: its confinement, its approvals, its change ticket or its emergency.
    fn failed(&mut self, end: &RunEnd) {
        if end.reason == NOT_CONFINED {
            self.confined(unconfined(end.message.as_str()));
        }
        if let Some(type_) = terms::failed_condition(end) {
            self.set(type_, false, &end.reason, end.message.as_str());
        }
    }
}

pub(super) fn report(
    runs: &Runs,
    now: Timestamp,
    run: &HarnessRun,
    state: &State,
    outcome: &Outcome,
) -> HarnessRunStatus {
    let mut status = run.status.clone().unwrap_or_default();
    let generation = run.metadata.generation;
    let failure = outcome.failure.as_ref();
    let seen = || {
        let run = StoredObject::new(run).ok()?;
        Some(Seen::of(&runs.keys, &run, &outcome.live))
    };
    let mut conditions = Conditions {
        status: &mut status,
        generation,
        now,
    };
    let (state, approved) = state.split();
    if let Some(approved) = approved {
        conditions.found(approved.clone());
    }
    match state {
        State::Over => return status,
        // What is about to come is told when it has.
        State::Next | State::Lacking | State::Confinable(..)
            if failure.is_none() && approved.is_none() =>
        {
            return status;
        }
        State::Waiting(obstacle) => waits(&mut conditions, failure.unwrap_or(obstacle)),
        State::Asking(obstacle, asked) => {
            let said = conditions.status.approval.take();
            let asked = Some(&asked.status);
            conditions.status.approval =
                approval::shown(Some(obstacle), asked, failure, said.as_ref());
            waits(&mut conditions, failure.unwrap_or(obstacle));
        }
        State::Next | State::Lacking | State::Confinable(..) | State::Approved(..) => {
            if let Some(failure) = failure {
                waits(&mut conditions, failure);
            }
        }
        State::Startable(decided, _, isolation) | State::Begun(decided, _, isolation, _) => {
            let Some(seen) = seen() else {
                return status;
            };
            let is_quiet = match state {
                State::Begun(_, pending, ..) => pending.quiet_until.is_some(),
                _ => !has_come(now, decided.told_at()),
            };
            if is_quiet && failure.is_none() && !seen.newest().is_some_and(has_started) {
                return status;
            }
            let granted = match state {
                State::Begun(_, _, _, granted) => granted.as_deref(),
                _ => None,
            };
            goes_on(&mut conditions, run, decided, &seen, failure);
            conditions.declared(decided);
            conditions.granted(decided, granted);
            conditions.confined(isolation.fact());
        }
        State::Ending(end, _) => {
            conditions.failed(end);
            conditions.set(COMPLETED, false, &end.reason, end.message.as_str());
        }
        State::Ended(end, at, decided) => match failure {
            None => {
                let Some(seen) = seen() else {
                    return status;
                };
                let decided = decided.as_deref().filter(|_| seen.has_begun(run));
                let end = (end, at.unwrap_or(now));
                ended(&mut conditions, run, end, decided, &seen);
            }
            Some(failure) => {
                let message = format!("{}{NOT_OVER}{failure}", end.message);
                conditions.set(COMPLETED, false, &end.reason, message);
            }
        },
    }
    status.phase.get_or_insert_default();
    status.observed_generation = generation;
    status
}

/// Sets the conditions and the outputs of a run without active processes; `decided` is its decision, if it has begun.
fn ended(
    conditions: &mut Conditions<'_>,
    run: &HarnessRun,
    (end, at): (&RunEnd, Timestamp),
    decided: Option<&Decided>,
    seen: &Seen<'_>,
) {
    if let Some(decided) = decided {
        goes_on(conditions, run, decided, seen, None);
        if terms::failed_condition(end).is_none() {
            conditions.declared(decided);
        }
        conditions.granted(decided, None);
    }
    conditions.failed(end);
    is_over(conditions, end, at);
    if let Some(outputs) = seen.outputs() {
        conditions.status.outputs = Some(outputs);
    }
}

/// Formats the hosts that a run requires, or else those of its credentials.
fn hosts(decided: &Decided) -> String {
    let mut all: Vec<String> = decided.egress.iter().map(destination).collect();
    if all.is_empty() {
        all.extend(decided.credentials.iter().flat_map(|it| it.hosts.clone()));
        all.sort_unstable();
        all.dedup();
    }
    all.join(", ")
}

/// Sets the condition of the obstacle for which a run has not begun, and removes those of earlier obstacles.
fn waits(conditions: &mut Conditions<'_>, obstacle: &Failure) {
    let type_ = match obstacle.reason {
        reason if OF_TEMPLATE.contains(&reason) => TEMPLATE_RESOLVED,
        reason if reason.starts_with("Workspace") => WORKSPACE_BOUND,
        approval::WAITING => APPROVED,
        "BrokerUnavailable" => BROKER_READY,
        "SecretsNotReadable" => CREDENTIALS_READY,
        reason => terms::waits_for(reason).unwrap_or(JOB_CREATED),
    };
    let is_current = |known: &Condition| known.type_ == type_ || known.status != "False";
    conditions.status.conditions.retain(is_current);
    conditions.set(type_, false, obstacle.reason, obstacle.message.as_str());
    conditions.status.phase = Some(RunPhase::Pending);
}

/// Sets the conditions of a run with a Job.
fn goes_on(
    conditions: &mut Conditions<'_>,
    run: &HarnessRun,
    decided: &Decided,
    seen: &Seen<'_>,
    failure: Option<&Failure>,
) {
    conditions.set(
        TEMPLATE_RESOLVED,
        true,
        "Resolved",
        decided.template.as_str(),
    );
    if !decided.approvals.is_empty() {
        conditions.found(approval::fact(&decided.approvals));
    }
    if let Some(workspace) = &decided.workspace {
        conditions.set(WORKSPACE_BOUND, true, "Bound", workspace.name.as_str());
        conditions.status.workspace_ref = Some(workspace.name.clone());
    }
    let prompt = match run.spec.prompt_from {
        Some(_) => "the kubelet mounts it",
        None => "the broker gives it to the run's pod",
    };
    conditions.set(PROMPT_RESOLVED, true, "Resolved", prompt);
    let broker = "the broker has an address and a certificate";
    conditions.set(BROKER_READY, true, "Ready", broker);
    match (&seen.job, failure) {
        (Some((_, job)), _) => {
            conditions.set(JOB_CREATED, true, "Created", "the Job exists");
            conditions.status.job_name.clone_from(&job.metadata.name);
            conditions.status.oz_image = own_image(job);
        }
        (None, Some(failure)) => {
            conditions.set(JOB_CREATED, false, failure.reason, failure.message.as_str());
        }
        (None, None) => {}
    }
    pod(conditions, seen);
}

/// Returns the image of oz's container, which is the first of the sidecars.
fn own_image(job: &Job) -> Option<String> {
    let pod = job.spec.as_ref()?.template.spec.as_ref()?;
    pod.init_containers.as_ref()?.first()?.image.clone()
}

fn pod(conditions: &mut Conditions<'_>, seen: &Seen<'_>) {
    let newest = seen.newest();
    let is_active = seen.active().next().is_some();
    let started = newest.filter(|pod| has_started(pod));
    match (newest, started) {
        (_, Some(pod)) => {
            let start = pod
                .status
                .as_ref()
                .and_then(|status| status.start_time.as_ref());
            let start = start.map(|time| time.0);
            conditions.status.start_time = conditions.status.start_time.or(start);
            conditions.status.phase = Some(RunPhase::Running);
            // One that has ended is told of with the run's end, or when the next attempt begins.
            if is_active {
                conditions.set(POD_READY, true, "Running", "the agent runs");
            }
        }
        (Some(pod), None) => {
            let is_late = told_from(pod).is_some_and(|from| has_come(conditions.now, from));
            match obstacle(pod).filter(|_| is_late) {
                Some(why) => conditions.set(POD_READY, false, NOT_STARTED, why.to_string()),
                None => conditions.set(POD_READY, false, "Starting", "the pod is starting"),
            }
        }
        // What kept one from starting is not forgotten when it goes.
        (None, _) if is_told_late(conditions.status) => {}
        (None, _) => conditions.set(POD_READY, false, "Starting", "the pod is starting"),
    }
}

/// Checks whether the status reports the obstacle to the start of a pod.
fn is_told_late(status: &HarnessRunStatus) -> bool {
    let known = conditions::find(&status.conditions, POD_READY);
    known.is_some_and(|known| known.reason == NOT_STARTED)
}

fn is_over(conditions: &mut Conditions<'_>, end: &RunEnd, at: Timestamp) {
    let known = conditions::find(&conditions.status.conditions, POD_READY);
    if known.is_some_and(|known| known.status == "True") {
        conditions.set(POD_READY, false, "Ended", "the agent has ended");
    }
    conditions.set(COMPLETED, true, &end.reason, end.message.as_str());
    conditions.status.phase = Some(end.phase);
    conditions.status.completion_time = Some(at);
}

pub(super) fn transitions(
    before: Option<&HarnessRunStatus>,
    after: &HarnessRunStatus,
) -> Vec<Transition> {
    let phase = |status: &HarnessRunStatus| status.phase.unwrap_or_default();
    let (phase_before, phase) = (before.map_or(RunPhase::Pending, phase), phase(after));
    let had_job = before.is_some_and(|status| status.job_name.is_some());
    let mut told: Vec<Transition> = terms::event(before, after).into_iter().collect();
    let mut tell = |warning, reason, action, note: String| {
        told.push(Transition {
            warning,
            reason,
            action,
            note,
            due: None,
        });
    };
    let new_job = after.job_name.as_ref().filter(|_| !had_job);
    if let Some(job) = new_job {
        let runs = match phase {
            RunPhase::Running => ", and the agent runs",
            _ => "",
        };
        let note = format!("Job {job} was created{runs}");
        tell(false, "JobCreated", "Start", note);
    }
    let is_open = |status: &HarnessRunStatus| {
        let confined = conditions::find(&status.conditions, CONFINED);
        confined
            .filter(|confined| confined.status == "False")
            .map(|confined| confined.message.clone())
    };
    let opened = is_open(after).filter(|why| before.and_then(is_open).as_ref() != Some(why));
    if let Some(why) = opened {
        tell(true, NOT_CONFINED, "Confine", why);
    }
    for type_ in [CREDENTIALS_READY, EGRESS_CONFIGURED] {
        let revoked = |status: &HarnessRunStatus| {
            let condition = conditions::find(&status.conditions, type_);
            let revoked = condition.filter(|it| it.reason == REVOKED);
            revoked.map(|it| it.message.clone())
        };
        let new = revoked(after).filter(|why| before.and_then(revoked).as_ref() != Some(why));
        if let Some(why) = new {
            tell(true, REVOKED, "Revoke", why);
        }
    }
    if phase == phase_before {
        return told;
    }
    let (warning, reason) = match phase {
        // One event tells of both, where one status does.
        RunPhase::Running if new_job.is_some() => return told,
        RunPhase::Running => {
            tell(false, "Running", "Start", "the agent runs".to_owned());
            return told;
        }
        RunPhase::Succeeded => (false, "Succeeded"),
        RunPhase::Failed => (true, "Failed"),
        RunPhase::Cancelled => (true, "Cancelled"),
        RunPhase::Pending | RunPhase::Idle => return told,
    };
    if let Some(completed) = conditions::find(&after.conditions, COMPLETED) {
        tell(warning, reason, "End", completed.message.clone());
    }
    told
}
