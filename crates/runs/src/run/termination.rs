//! The plans that terminate a run, and the plan for a run that has ended.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use oz_api::harness::{HarnessRun, RunPhase};
use oz_core::controller::{Live, Plan, Sought, Step};
use oz_core::lifecycle::drift::has_finalizer;
use oz_core::lifecycle::window::{after, has_come};
use oz_trail::{Action, Decision as Decision_, Record};

use super::decided::Decided;
use super::existing::{self, RunEnd, Seen};
use super::records::undecided_record;
use crate::stored::StoredObject;

/// The finalizers of Paddock, which stored objects may still have.
const ORIGINAL_FINALIZERS: [&str; 2] = [
    "paddock.dev/harnessrun-finalizer",
    "paddock.dev/broker-leases-finalizer",
];

/// Returns the plan that terminates all processes of a run.
pub(super) fn ending(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    end: &RunEnd,
    decided: Option<&Decided>,
    seen: &Seen<'_>,
) -> Plan {
    let is_timeout = *end == existing::deadline_exceeded();
    // The Job controller creates no pod of a Job after its deadline, and reports its end.
    let job = seen
        .job
        .as_ref()
        .filter(|_| !is_timeout)
        .map(|(live, _)| *live);
    let pods = seen.active().map(|(live, _)| *live);
    let look = seen.job.is_none().then(|| look_for_job(run));
    let plan = Plan::default()
        .then(deleted(job.into_iter().chain(pods)))
        .then(look);
    // No event follows a deletion by the operator itself, or the end of a pod that lost its labels.
    let plan = match job {
        Some(_) => plan.wake_at(after(now, SignedDuration::from_secs(1))),
        None => plan,
    };
    match end.reason == "DriftDetected" {
        true => {
            let record = |decided: &Decided| {
                let (action, ends) = (Action::DriftDetected, Decision_::End);
                decided.record(now, action, ends, "DriftDetected", end.message.as_str())
            };
            plan.then(decided.map(record).map(Step::Record))
        }
        false => plan,
    }
}

/// Returns the plan for a run without active processes: an audit record of the end, then the deletion of the
/// NetworkPolicy.
pub(super) fn ended(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    end: &RunEnd,
    decided: Option<&Decided>,
    seen: &Seen<'_>,
    has_begun: bool,
) -> Plan {
    let is_lost = has_begun && seen.job.is_none();
    let looks = is_lost.then(|| look_for_job(run));
    let is_retired = end.reason == existing::SEAL_RETIRED;
    let (action, what) = match is_retired {
        true => (Action::RunEnded, Decision_::End),
        false => (Action::RequestDenied, Decision_::Deny),
    };
    let record = match decided {
        Some(decided) => self::record(now, end, decided),
        None => undecided_record(now, run, (action, what), (&end.reason, &end.message)),
    };
    let is_withdrawn = decided.is_none() && end.phase == RunPhase::Cancelled && !is_retired;
    let policy = seen.policy.map(|policy| Step::Delete(policy.reference()));
    let plan = Plan::default()
        .then(looks)
        .then((!is_withdrawn).then_some(Step::Record(record)))
        .then(policy);
    released(plan, run)
}

/// Returns the plan for a run that has ended: all of its objects are deleted, whether oz or Paddock created them.
pub(super) fn over(now: Timestamp, run: &HarnessRun, seen: &Seen<'_>) -> Plan {
    let is_unfinished = seen.job.is_some() && seen.job_end().is_none();
    let job = seen
        .job
        .as_ref()
        .filter(|_| is_unfinished)
        .map(|(live, _)| *live);
    let pods: Vec<&Live> = seen.active().map(|(live, _)| *live).collect();
    let policy = seen.policy.filter(|_| pods.is_empty() && !is_unfinished);
    let plan = Plan::default()
        .then(deleted(job.into_iter().chain(pods)))
        .then(policy.map(|policy| Step::Delete(policy.reference())));
    let plan = released(plan, run);
    let completed = run
        .status
        .as_ref()
        .and_then(|status| status.completion_time);
    match (run.spec.ttl_seconds_after_finished, completed) {
        (Some(seconds), Some(completed)) if run.metadata.deletion_timestamp.is_none() => {
            let at = after(completed, SignedDuration::from_secs(seconds.into()));
            match has_come(now, at) {
                true => plan.then([Step::DeleteSelf]),
                false => plan.wake_at(at),
            }
        }
        _ => plan,
    }
}

/// Removes the finalizers of Paddock when no object remains for which they were set.
fn released(plan: Plan, run: &HarnessRun) -> Plan {
    let metadata = &run.metadata;
    if metadata.deletion_timestamp.is_none() {
        return plan;
    }
    let held = ORIGINAL_FINALIZERS
        .into_iter()
        .filter(|name| has_finalizer(metadata, name));
    held.fold(plan, |plan, name| {
        plan.then([Step::Release(name.to_owned())])
    })
}

/// Returns the deletions of the objects that are not being deleted yet.
pub(super) fn deleted<'a>(objects: impl IntoIterator<Item = &'a Live>) -> Vec<Step> {
    let stays = |live: &&Live| live.object.metadata.deletion_timestamp.is_none();
    let stay = objects.into_iter().filter(stays);
    stay.map(|live| Step::Delete(live.reference())).collect()
}

fn look_for_job(run: &StoredObject<'_, HarnessRun>) -> Step {
    let namespace = Some(run.namespace.as_str());
    Step::Look(Sought::with_name::<Job>(namespace, run.name()))
}

/// Creates the audit record of the end of a run with a decision.
pub(super) fn record(now: Timestamp, end: &RunEnd, decided: &Decided) -> Record {
    let (action, ends) = (Action::RunEnded, Decision_::End);
    let phase: &'static str = end.phase.into();
    let record = decided.record(now, action, ends, &end.reason, end.message.as_str());
    record.detail("phase", phase)
}
