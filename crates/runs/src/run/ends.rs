//! The reasons to end a run that has begun, apart from the rules: its Job was deleted, its objects were changed, others
//! permit more connections to its pods, or its pod does not start.

use jiff::{SignedDuration, Timestamp};
use oz_api::harness::HarnessRun;
use oz_api::{EndReason, conditions};
use oz_core::lifecycle::End;
use oz_core::lifecycle::drift::Drift;
use oz_core::lifecycle::window::{after, has_come};

use super::decided::Decided;
use super::existing::{self, NOT_STARTED, Seen};
use super::spec::{prompt, spec_digest};
use super::{Runs, drift};
use crate::isolation::Isolation;
use crate::jobs;
use crate::pod::Prompt;
use crate::stored::StoredObject;

/// Time after the start of a run's Job for which its pod may be unknown, and the interval between later searches for
/// it.
const POD_WAIT: SignedDuration = SignedDuration::from_secs(10);

/// Returns the change of the spec of a run, which ends it.
pub(super) fn changed_spec(run: &HarnessRun, decided: &Decided) -> Option<Drift> {
    (decided.spec_digest != spec_digest(run)).then_some(Drift::Spec)
}

/// Returns the reasons to end a run; `decided` is its decision, if an object carries it.
pub(super) fn early_ends(
    runs: &Runs,
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    (seen, decided): (&Seen<'_>, Option<&Decided>),
    isolation: impl FnOnce() -> Isolation,
) -> Vec<End> {
    let mut ends = Vec::new();
    if seen.job.is_none() {
        ends.push(End::JOB_DELETED);
    }
    let lasting = seen.policy.zip(decided);
    let lasting = lasting.and_then(|(policy, decided)| drift::lasting(decided, run, policy));
    ends.extend(lasting.map(End::drift));
    if seen.is_displaced {
        let what = Drift::Replaced("its NetworkPolicy".to_owned());
        ends.push(End::drift(what));
    }
    if runs.require_confined {
        ends.extend(isolation().obstacle().map(End::not_confined));
    }
    let is_late = ready_until(runs, seen).is_some_and(|until| has_come(now, until));
    if is_late {
        ends.push(not_started(runs, run, seen));
    }
    ends
}

/// Returns the end of a run with a pod that did not start in time.
fn not_started(runs: &Runs, run: &HarnessRun, seen: &Seen<'_>) -> End {
    let why = seen.newest().and_then(jobs::obstacle);
    let why = why.map(|why| why.to_string());
    let prompt = run.spec.prompt_from.as_ref().map(|_| prompt_source(run));
    let why = why
        .or(prompt)
        .unwrap_or_else(|| "its containers did not start".to_owned());
    End::not_ready(format!(
        "its pod did not start within {:#} of getting a node: {why}",
        runs.pod_ready_timeout
    ))
}

/// Returns the end of a run without a decision: its objects were changed, or an earlier release sealed them.
pub(super) fn lost_decision(seen: &Seen<'_>) -> End {
    match seen.is_retired {
        true => End::seal_retired(),
        false => End::drift("the decision on its NetworkPolicy and its Job was changed or removed"),
    }
}

/// Returns the deadline for the start of the newest pod, if the pod has a node and has not started.
pub(super) fn ready_until(runs: &Runs, seen: &Seen<'_>) -> Option<Timestamp> {
    let pod = seen.newest().filter(|pod| !jobs::has_started(pod))?;
    Some(after(existing::scheduled_at(pod)?, runs.pod_ready_timeout))
}

/// Returns the description of a prompt in another object, for which a pod waits.
fn prompt_source(run: &HarnessRun) -> String {
    match prompt(run) {
        Prompt::ConfigMap(reference) => format!(
            "its prompt is in key {} of ConfigMap {}: check that both exist",
            reference.key, reference.name
        ),
        Prompt::Secret(reference) => format!(
            "its prompt is in key {} of Secret {}: check that both exist",
            reference.key, reference.name
        ),
        Prompt::Inline => String::new(),
    }
}

/// Returns the expiry of a run: it counts from the start of its Job, as the Job controller recorded it.
pub(super) fn until(decided: &Decided, seen: &Seen<'_>) -> Option<Timestamp> {
    let seconds = decided.timeout_seconds?;
    Some(after(
        seen.job_started()?,
        SignedDuration::from_secs(seconds),
    ))
}

/// Returns the deadline for the watch to show a pod that the Job counts: the watch selects pods by the labels that
/// confine them. A pod that has ended is counted as active for some time.
pub(super) fn hidden_until(seen: &Seen<'_>) -> Option<Timestamp> {
    let (_, job) = seen.job.as_ref()?;
    let status = job.status.as_ref()?;
    let counts = [status.active, status.succeeded, status.failed];
    let counted = usize::try_from(counts.into_iter().flatten().sum::<i32>());
    let is_hidden = status.active.is_some_and(|active| active > 0)
        && counted.is_ok_and(|counted| seen.pods.len() < counted);
    is_hidden.then(|| {
        let started = seen.job_started();
        started.map_or(Timestamp::UNIX_EPOCH, |started| after(started, POD_WAIT))
    })
}

/// Returns the instant of the next search for a pod that the Job counts and the watch does not show, if there is such
/// a pod.
pub(super) fn looked_for_at(now: Timestamp, seen: &Seen<'_>) -> Option<Timestamp> {
    let until = hidden_until(seen)?;
    Some(match has_come(now, until) {
        true => after(now, POD_WAIT),
        false => until,
    })
}

/// Returns the end of a run with a pod that lost its labels.
pub(super) fn hidden_pod() -> End {
    End::drift("its pod lost the labels by which its NetworkPolicy confines it")
}

/// Returns the end that the status reports while the run's objects are deleted.
pub(super) fn remembered(run: &HarnessRun) -> Option<End> {
    let conditions = &run.status.as_ref()?.conditions;
    let completed = conditions::find(conditions, existing::COMPLETED)?;
    let reason = match completed.reason.as_str() {
        existing::DEADLINE => EndReason::Expired,
        NOT_STARTED => EndReason::PodNotReady,
        other => other.parse::<EndReason>().ok().filter(is_remembered)?,
    };
    let message = completed.message.split_once(existing::NOT_OVER);
    let message = message.map_or(completed.message.as_str(), |(message, _)| message);
    Some(End {
        reason,
        detail: Some(message.to_owned()),
    })
}

/// Checks whether an end of this reason stays, even if its cause no longer exists.
const fn is_remembered(reason: &EndReason) -> bool {
    matches!(
        reason,
        EndReason::DriftDetected
            | EndReason::JobDeleted
            | EndReason::SealRetired
            | EndReason::NotConfined
            | EndReason::Locked
            | EndReason::TicketClosed
            | EndReason::TicketCheckUnavailable
    )
}
