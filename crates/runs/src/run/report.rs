//! What the status says after a plan was carried out, as far as it went.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use oz_api::conditions;
use oz_api::harness::{HarnessRun, HarnessRunStatus, RunPhase};
use oz_core::access::status::Fact;
use oz_core::controller::{Failure, Outcome, Transition};
use oz_core::lifecycle::window::has_come;

use super::Runs;
use super::assess::State;
use super::decided::Decided;
use super::existing::{COMPLETED, NOT_OVER, RunEnd, Seen};
use crate::isolation::{CONFINED, NOT_CONFINED, unconfined};
use crate::jobs::{has_started, obstacle, told_from};
use crate::stored::StoredObject;

/// Condition: its template is known.
const TEMPLATE_RESOLVED: &str = "TemplateResolved";
/// Condition: it holds its workspace.
const WORKSPACE_BOUND: &str = "WorkspaceBound";
/// Condition: where its prompt is, is known.
const PROMPT_RESOLVED: &str = "PromptResolved";
/// Condition: it has the credentials that its template requires.
const CREDENTIALS_READY: &str = "BrokerCredentialsReady";
/// Condition: it reaches what its template requires, and nothing else.
const EGRESS_CONFIGURED: &str = "EgressConfigured";
/// Condition: its Job exists.
const JOB_CREATED: &str = "JobCreated";
/// Condition: its agent runs.
const POD_READY: &str = "PodReady";

/// Reason of [`POD_READY`]: something is in its pod's way.
const NOT_STARTED: &str = "NotStarted";

/// Reasons of waiting that are about the template.
const OF_TEMPLATE: [&str; 4] = [
    "TemplateNotFound",
    "TemplateInvalid",
    "Invalid",
    "PolicyMissing",
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

    fn confined(&mut self, found: Fact) {
        self.status.network_policy_enforced = Some(found.holds);
        self.set(found.type_, found.holds, found.reason, found.message);
    }

    /// What a run ends for, if it ends since it is not confined.
    fn unconfined(&mut self, end: &RunEnd) {
        if end.reason == NOT_CONFINED {
            self.confined(unconfined(end.message.as_str()));
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
    match state {
        State::Over => return status,
        // What is about to come is told when it has.
        State::Next | State::Lacking | State::Confinable(..) if failure.is_none() => return status,
        State::Waiting(obstacle) => waits(&mut conditions, failure.unwrap_or(obstacle)),
        State::Next | State::Lacking | State::Confinable(..) => {
            if let Some(failure) = failure {
                waits(&mut conditions, failure);
            }
        }
        State::Startable(decided, _, isolation) | State::Begun(decided, _, isolation) => {
            let Some(seen) = seen() else {
                return status;
            };
            let is_quiet = match state {
                State::Begun(_, pending, _) => pending.quiet_until.is_some(),
                _ => !has_come(now, decided.told_at()),
            };
            if is_quiet && failure.is_none() && !seen.newest().is_some_and(has_started) {
                return status;
            }
            goes_on(&mut conditions, run, decided, &seen, failure);
            conditions.confined(isolation.fact());
        }
        State::Ending(end, _) => {
            conditions.unconfined(end);
            conditions.set(COMPLETED, false, &end.reason, end.message.as_str());
        }
        State::Ended(end, at, decided) => match failure {
            None => {
                let Some(seen) = seen() else {
                    return status;
                };
                if let Some(decided) = decided.as_ref().filter(|_| seen.has_begun(run)) {
                    goes_on(&mut conditions, run, decided, &seen, None);
                }
                conditions.unconfined(end);
                is_over(&mut conditions, end, at.unwrap_or(now));
                status.outputs = seen.outputs().or(status.outputs);
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

/// It has not begun.
fn waits(conditions: &mut Conditions<'_>, obstacle: &Failure) {
    let type_ = match obstacle.reason {
        reason if OF_TEMPLATE.contains(&reason) => TEMPLATE_RESOLVED,
        reason if reason.starts_with("Workspace") => WORKSPACE_BOUND,
        _ => JOB_CREATED,
    };
    conditions.set(type_, false, obstacle.reason, obstacle.message.as_str());
    conditions.status.phase = Some(RunPhase::Pending);
}

/// Its Job was made.
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
    if let Some(workspace) = &decided.workspace {
        conditions.set(WORKSPACE_BOUND, true, "Bound", workspace.name.as_str());
        conditions.status.workspace_ref = Some(workspace.name.clone());
    }
    let prompt = match run.spec.prompt_from {
        Some(_) => "the kubelet mounts it",
        None => "the broker gives it to the run's pod",
    };
    conditions.set(PROMPT_RESOLVED, true, "Resolved", prompt);
    if !decided.credentials.is_empty() {
        let names = decided.credentials.join(", ");
        let message = format!("{names}: not delivered, credentials are not served yet");
        conditions.set(CREDENTIALS_READY, false, "NotServed", message);
    }
    match decided.hosts.is_empty() {
        true => conditions.set(
            EGRESS_CONFIGURED,
            true,
            "Closed",
            "the run reaches the broker alone",
        ),
        false => {
            let hosts = decided.hosts.join(", ");
            let message =
                format!("the run reaches the broker alone, not {hosts}: egress is not served yet");
            conditions.set(EGRESS_CONFIGURED, false, "NotServed", message);
        }
    }
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

/// Image of our container, which is the first of the sidecars.
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

/// Whether it is told what kept its pod from starting.
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
    let mut told = Vec::new();
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
