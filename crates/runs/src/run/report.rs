//! The status of a run after a plan was carried out, up to the first failure.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::conditions;
use oz_api::harness::{HarnessRun, HarnessRunStatus, RunPhase};
use oz_core::access::{approval, ticket};
use oz_core::controller::{Failure, Outcome};
use oz_core::lifecycle::window::has_come;

use super::Runs;
use super::conditions::{
    APPROVED, BROKER_READY, CREDENTIALS_READY, Conditions, JOB_CREATED, POD_READY, PROMPT_RESOLVED,
    TEMPLATE_RESOLVED, WORKSPACE_BOUND,
};
use super::decided::Decided;
use super::existing::{COMPLETED, NOT_OVER, RunEnd, Seen};
use super::facts::State;
use super::terms;
use crate::jobs::{has_started, obstacle, reported_from};
use crate::stored::StoredObject;

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

/// Returns the status of a run in this state, after its plan was carried out up to the first failure.
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
        // The status does not change before the workspace, the NetworkPolicy or the Job exists.
        State::Next | State::Lacking | State::Confinable(..)
            if failure.is_none() && approved.is_none() =>
        {
            return status;
        }
        State::Waiting(obstacle) => waits(&mut conditions, failure.unwrap_or(obstacle)),
        State::Asking(obstacle, asked) => {
            let reported = conditions.status.approval.take();
            let asked = Some(&asked.status);
            conditions.status.approval =
                approval::shown(Some(obstacle), asked, failure, reported.as_ref());
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
                _ => !has_come(now, decided.reported_at()),
            };
            if is_quiet && failure.is_none() && !seen.newest().is_some_and(has_started) {
                return status;
            }
            let granted = match state {
                State::Begun(_, _, _, granted) => granted.as_deref(),
                _ => None,
            };
            begun(&mut conditions, run, decided, &seen, failure);
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
        begun(conditions, run, decided, seen, None);
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

/// Sets the condition of the obstacle for which a run has not begun, and removes those of earlier obstacles. While a ticket
/// check is queried, a run keeps its place in the queue of its workspace.
fn waits(conditions: &mut Conditions<'_>, obstacle: &Failure) {
    let type_ = match obstacle.reason {
        reason if OF_TEMPLATE.contains(&reason) => TEMPLATE_RESOLVED,
        reason if reason.starts_with("Workspace") => WORKSPACE_BOUND,
        approval::WAITING => APPROVED,
        "BrokerUnavailable" => BROKER_READY,
        "SecretsNotReadable" => CREDENTIALS_READY,
        reason => terms::waits_for(reason).unwrap_or(JOB_CREATED),
    };
    let kept = (obstacle.reason == ticket::WAITING).then_some(WORKSPACE_BOUND);
    let is_current = |known: &Condition| {
        known.status != "False" || [Some(type_), kept].contains(&Some(known.type_.as_str()))
    };
    conditions.status.conditions.retain(is_current);
    conditions.set(type_, false, obstacle.reason, obstacle.message.as_str());
    conditions.status.phase = Some(RunPhase::Pending);
}

/// Sets the conditions of a run with a Job.
fn begun(
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

/// Sets the conditions of the pod of a run.
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
            // The end of a pod is reported with the end of the run, or with the start of the next attempt.
            if is_active {
                conditions.set(POD_READY, true, "Running", "the agent runs");
            }
        }
        (Some(pod), None) => {
            let is_late = reported_from(pod).is_some_and(|from| has_come(conditions.now, from));
            match obstacle(pod).filter(|_| is_late) {
                Some(why) => conditions.set(POD_READY, false, NOT_STARTED, why.to_string()),
                None => conditions.set(POD_READY, false, "Starting", "the pod is starting"),
            }
        }
        // The obstacle to the start of a pod stays in the status after the deletion of the pod.
        (None, _) if reports_late_start(conditions.status) => {}
        (None, _) => conditions.set(POD_READY, false, "Starting", "the pod is starting"),
    }
}

/// Checks whether the status reports the obstacle to the start of a pod.
fn reports_late_start(status: &HarnessRunStatus) -> bool {
    let known = conditions::find(&status.conditions, POD_READY);
    known.is_some_and(|known| known.reason == NOT_STARTED)
}

/// Sets the conditions, the phase and the time of the end.
fn is_over(conditions: &mut Conditions<'_>, end: &RunEnd, at: Timestamp) {
    let known = conditions::find(&conditions.status.conditions, POD_READY);
    if known.is_some_and(|known| known.status == "True") {
        conditions.set(POD_READY, false, "Ended", "the agent has ended");
    }
    conditions.set(COMPLETED, true, &end.reason, end.message.as_str());
    conditions.status.phase = Some(end.phase);
    conditions.status.completion_time = Some(at);
}
