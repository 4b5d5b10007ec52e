//! The plan for a run that has begun and does not end.

use jiff::Timestamp;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::harness::HarnessRun;
use oz_core::controller::{Live, Plan, Sought, Step};
use oz_core::lifecycle::window::after;
use oz_trail::{Action, Decision as Decision_, Record};

use super::decided::Decided;
use super::drift;
use super::existing::Seen;
use super::facts::Pending;
use crate::isolation::LOOK_AGAIN;
use crate::objects::policy_name;
use crate::stored::StoredObject;

/// Returns the plan for an active run: changes by other clients are reverted.
pub(super) fn active(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    decided: &Decided,
    opened: Option<Step>,
    pending: Pending,
    seen: &Seen<'_>,
) -> Plan {
    let policy = drift::policy(decided, run, seen.sealed, seen.policy);
    let policy = policy.filter(|desired| {
        let is_as_decided = |live: &Live| !drift::has_drifted(live, desired);
        !(seen.is_confined && seen.policy.is_some_and(is_as_decided))
    });
    let job = drift::job(decided, run, seen);
    let record = |what: &str, there: Option<&Live>| {
        let (action, note) = (Action::DriftDetected, Decision_::Note);
        let message = format!("{what} of the run was changed by another client, and is restored");
        let mut record = decided.record(now, action, note, "Restored", message);
        // Each change is a fact of its own.
        let metadata = there.map(|there| &there.object.metadata);
        let version = metadata.and_then(|metadata| metadata.resource_version.as_deref());
        let mut changed = format!("{}/{what}/", decided.run.uid);
        changed.extend(version);
        record.id = Record::id(action, &changed);
        Step::Record(record.detail("object", what))
    };
    let look = (seen.policy.is_none()).then(|| look_for_policy(run));
    let again = opened.as_ref().map(|_| after(now, LOOK_AGAIN));
    let live_job = seen.job.as_ref().map(|(live, _)| *live);
    let records = [
        policy
            .as_ref()
            .map(|_| record("the NetworkPolicy", seen.policy)),
        job.as_ref().map(|_| record("the Job", live_job)),
    ];
    let mut plan = Plan::default()
        .then(look)
        .then(records.into_iter().flatten().chain(opened))
        .then([policy, job].into_iter().flatten().map(Step::Apply));
    let wakes = [
        pending.until,
        pending.ready_until,
        pending.reported_from,
        pending.quiet_until,
        again,
    ];
    for at in wakes.into_iter().flatten() {
        plan = plan.wake_at(at);
    }
    plan
}

fn look_for_policy(run: &StoredObject<'_, HarnessRun>) -> Step {
    let (namespace, name) = (Some(run.namespace.as_str()), policy_name(run.name()));
    Step::Look(Sought::with_name::<NetworkPolicy>(namespace, name))
}
