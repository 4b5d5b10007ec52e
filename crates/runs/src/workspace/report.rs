//! The status of a workspace after a plan was carried out, up to the first failure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::conditions;
use oz_api::harness::{Workspace, WorkspacePhase, WorkspaceStatus};
use oz_core::controller::{Outcome, Transition};

use super::assess::{Holder, State, Waiting};
use super::seeding::{JOB_FAILED, SEEDED, SEEDING, SUCCEEDED, Seeding};
use crate::isolation::Isolation;
use crate::pod::claim_name;
use crate::seed::job_name;

/// Condition: the claim is bound to a volume.
const PVC_BOUND: &str = "PVCBound";
/// Condition: runs can use the workspace.
pub(super) const READY: &str = "Ready";

pub(super) fn report(
    now: Timestamp,
    workspace: &Workspace,
    state: &State,
    outcome: &Outcome,
) -> WorkspaceStatus {
    let mut status = workspace.status.clone().unwrap_or_default();
    let generation = workspace.metadata.generation;
    let failure = outcome.failure.as_ref();
    let mut set = |type_: &str, holds: bool, reason: &str, message: &str| {
        let conditions = &mut status.conditions;
        conditions::set(conditions, type_, holds, reason, message, generation, now);
    };
    if let Some(failure) = failure {
        set(READY, false, failure.reason, &failure.message);
        return status;
    }
    match state.is_bound {
        true => set(PVC_BOUND, true, "Bound", "the claim has a volume"),
        false => set(PVC_BOUND, false, "Pending", "the claim has no volume yet"),
    }
    if let Some(found) = state.isolation.as_ref().map(Isolation::fact) {
        set(found.type_, found.holds, found.reason, &found.message);
    }
    match &state.why {
        Some((reason, message)) => {
            if !matches!(state.seeding, Seeding::Unneeded | Seeding::Done) {
                set(SEEDED, false, reason, message);
            }
            set(READY, false, reason, message);
        }
        None if state.phase == WorkspacePhase::Terminating => {
            set(
                READY,
                false,
                "Terminating",
                "it is deleted when no run uses it",
            );
        }
        None => {
            match state.seeding {
                Seeding::Unneeded => set(SEEDED, true, "NoSeedRequired", "it has no seed"),
                _ => set(SEEDED, true, SUCCEEDED, "its repositories were cloned"),
            }
            set(READY, true, "Active", "runs can use it");
        }
    }
    if !matches!(state.seeding, Seeding::Unneeded | Seeding::Refused(..)) {
        status.seed_job_name = workspace.metadata.name.as_deref().map(job_name);
    }
    status.phase = Some(state.phase);
    status.observed_generation = generation;
    if state.phase != WorkspacePhase::Terminating {
        status.pvc_name = workspace.metadata.name.as_deref().map(claim_name);
    }
    match &state.holder {
        Holder::Same(_) => {}
        Holder::New(run) => held(&mut status, run, now),
        Holder::Nobody => {
            if status.active_run_ref.take().is_some() {
                status.active_run_uid = None;
                status.last_activity = Some(now);
            }
        }
    }
    status
}

fn held(status: &mut WorkspaceStatus, run: &Waiting, now: Timestamp) {
    status.active_run_ref = Some(run.name.clone());
    status.active_run_uid.clone_from(&run.uid);
    status.last_activity = Some(now);
    if status.last_counted_run.as_ref() != Some(&run.name) {
        status.last_counted_run = Some(run.name.clone());
        status.total_runs = status.total_runs.saturating_add(1);
    }
}

/// The result of the seeding of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum SeedOutcome {
    /// The repositories were cloned.
    Succeeded,
    /// A repository could not be cloned.
    Failed,
}

/// Returns the result of a seeding that ended between two statuses of a workspace, and the instant from which it was
/// permitted; `None` if it did not end.
#[must_use]
pub fn seeding_ended(
    before: Option<&WorkspaceStatus>,
    after: &WorkspaceStatus,
) -> Option<(Timestamp, SeedOutcome)> {
    let (was, is) = (seeded(before?)?, seeded(after)?);
    let outcome = match is.reason.as_str() {
        SUCCEEDED => SeedOutcome::Succeeded,
        JOB_FAILED => SeedOutcome::Failed,
        _ => return None,
    };
    (was.reason != is.reason).then_some((was.last_transition_time.0, outcome))
}

fn seeded(status: &WorkspaceStatus) -> Option<&Condition> {
    conditions::find(&status.conditions, SEEDED)
}

pub(super) fn transitions(
    before: Option<&WorkspaceStatus>,
    after: &WorkspaceStatus,
) -> Vec<Transition> {
    let tell = |warning, reason, action, note: String| Transition {
        warning,
        reason,
        action,
        note,
        due: None,
    };
    let phase_before = before.and_then(|status| status.phase);
    let mut told = Vec::new();
    let goes_on = |status: &WorkspaceStatus| seeded(status).is_some_and(|it| it.reason == SEEDING);
    if goes_on(after) && !before.is_some_and(goes_on) {
        let note = "its repositories are to be cloned".to_owned();
        told.push(tell(false, "SeedStarted", "Fill", note));
    }
    if let Some((_, outcome)) = seeding_ended(before, after)
        && let Some(seeded) = seeded(after)
    {
        let note = seeded.message.clone();
        told.push(match outcome {
            SeedOutcome::Succeeded => tell(false, "Seeded", "Fill", note),
            SeedOutcome::Failed => tell(true, "SeedFailed", "Fill", note),
        });
    } else if after.phase == Some(WorkspacePhase::Failed) && phase_before != after.phase {
        let ready = conditions::find(&after.conditions, READY);
        let why = ready.map(|ready| ready.message.clone());
        told.extend(why.map(|why| tell(true, "WorkspaceFailed", "Fill", why)));
    }
    if after.phase == Some(WorkspacePhase::Terminating) && phase_before != after.phase {
        let holder = after.active_run_ref.as_deref();
        told.extend(holder.map(|holder| {
            let note = format!("it is deleted when run {holder} has ended");
            tell(true, "DeletionBlocked", "Delete", note)
        }));
    }
    told
}
