//! The assessment of a workspace: its state and its holder.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::harness::{HarnessRun, Workspace, WorkspacePhase};
use oz_core::controller::{Failure, Live};

use super::Workspaces;
use super::seeding::Seeding;
use crate::isolation::Isolation;
use crate::pod::claim_name;
use crate::queue::runs_on;
use crate::stored::StoredObject;

/// The data that an assessment requires in addition to the workspace and its objects.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The runs that wait for it, the next one first.
    pub queue: Vec<Waiting>,
    /// Whether the run in its status as holder exists and has not ended.
    pub holder_is_live: bool,
    /// The response to [`Question::IsConfined`].
    pub is_confined: Option<Result<bool, Failure>>,
    /// The NetworkPolicies of its namespace that may select the seeding pods.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
}

/// A run that waits for a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Name of the run.
    pub name: String,
    /// UID of the run; `None` for a holder that Paddock recorded.
    pub uid: Option<String>,
}

/// The data that is required before a workspace passes from one run to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the NetworkPolicy of the previous holder still exists: its pods may still run.
    IsConfined {
        /// The previous holder.
        holder: Waiting,
    },
}

/// The state of a workspace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// The phase: Seeding, Active, Failed or Terminating.
    pub phase: WorkspacePhase,
    /// Reason and message of a phase other than Active.
    pub why: Option<(&'static str, String)>,
    /// The holder.
    pub holder: Holder,
    /// Whether its claim is bound.
    pub is_bound: bool,
    /// Progress of the seeding.
    pub seeding: Seeding,
    /// The NetworkPolicies that permit more connections to the seeding pods, while such pods exist or may exist.
    pub isolation: Option<Isolation>,
}

/// The holder of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// No run holds the workspace.
    #[default]
    Nobody,
    /// The previous holder remains.
    Same(Waiting),
    /// This run becomes the holder.
    New(Waiting),
}

/// Returns the runs of its namespace that wait for a workspace, in the order in which they get it.
#[must_use]
pub fn queue<'a>(
    workspace: &Workspace,
    runs: impl IntoIterator<Item = &'a HarnessRun>,
) -> Vec<Waiting> {
    let waiting = |run: &HarnessRun| {
        Some(Waiting {
            name: run.metadata.name.clone()?,
            uid: Some(run.metadata.uid.clone()?),
        })
    };
    let runs = runs_on(workspace, runs).into_iter();
    runs.filter_map(waiting).collect()
}

pub(super) fn assess(
    now: Timestamp,
    controller: &Workspaces,
    workspace: &StoredObject<'_, Workspace>,
    facts: &Facts,
    live: &[Live],
) -> Result<State, Question> {
    let is_going = workspace.metadata.deletion_timestamp.is_some();
    let holder = holder(workspace, facts)?;
    let claim = claim_of(workspace, live);
    let claim_phase = claim
        .as_ref()
        .and_then(|claim| claim.status.as_ref()?.phase.clone());
    let is_bound = claim_phase.as_deref() == Some("Bound");
    let seeding = Seeding::of(now, workspace, controller, live);
    let isolation = seeding.isolation(workspace, controller, &facts.network_policies, live);
    let obstacle = isolation.as_ref().and_then(Isolation::obstacle);
    let seeding = match obstacle {
        Some(why) if controller.require_confined => seeding.unconfined(why.to_string()),
        _ => seeding,
    };
    let usable = usable(workspace, claim.as_ref(), claim_phase.as_deref());
    let usable = usable.and_then(|()| seeding.obstacle().map_or(Ok(()), Err));
    let (phase, why) = match usable {
        _ if is_going => (WorkspacePhase::Terminating, None),
        Ok(()) => (WorkspacePhase::Active, None),
        Err((phase, reason, message)) => (phase, Some((reason, message))),
    };
    // Who has it keeps it, whatever became of it; nobody else gets it then.
    let holder = match (holder, facts.queue.first()) {
        (Some(held), _) => Holder::Same(held),
        (None, Some(next)) if phase == WorkspacePhase::Active => Holder::New(next.clone()),
        (None, _) => Holder::Nobody,
    };
    Ok(State {
        phase,
        why,
        holder,
        is_bound,
        seeding,
        isolation,
    })
}

/// Checks whether runs can use the workspace.
fn usable(
    workspace: &StoredObject<'_, Workspace>,
    claim: Option<&PersistentVolumeClaim>,
    phase: Option<&str>,
) -> Result<(), (WorkspacePhase, &'static str, String)> {
    let name = claim_name(workspace.name());
    let told = workspace
        .status
        .as_ref()
        .and_then(|status| status.pvc_name.as_ref());
    let lost = |what: &str| {
        let message = format!(
            "PersistentVolumeClaim {name} {what}, and its data is lost: create another workspace"
        );
        Err((WorkspacePhase::Failed, "ClaimLost", message))
    };
    match (claim, phase) {
        (None, _) if told.is_some() => lost("was deleted"),
        (Some(claim), _) if claim.metadata.deletion_timestamp.is_some() => lost("is being deleted"),
        (_, Some("Lost")) => lost("lost its volume"),
        _ => Ok(()),
    }
}

/// Returns the run that still holds a workspace; `None` if no run does.
fn holder(workspace: &Workspace, facts: &Facts) -> Result<Option<Waiting>, Question> {
    let status = workspace.status.as_ref();
    let held = status.and_then(|status| {
        Some(Waiting {
            name: status.active_run_ref.clone()?,
            uid: status.active_run_uid.clone().filter(|uid| !uid.is_empty()),
        })
    });
    let Some(held) = held else { return Ok(None) };
    if facts.holder_is_live {
        return Ok(Some(held));
    }
    match &facts.is_confined {
        None => Err(Question::IsConfined { holder: held }),
        Some(Ok(false)) => Ok(None),
        // Who cannot be seen to be gone may be there.
        Some(Ok(true) | Err(_)) => Ok(Some(held)),
    }
}

/// Returns the claim of a workspace, if it exists.
pub(super) fn claim_of(
    workspace: &StoredObject<'_, Workspace>,
    live: &[Live],
) -> Option<PersistentVolumeClaim> {
    let name = claim_name(workspace.name());
    let mut claims = live.iter().filter_map(Live::parse::<PersistentVolumeClaim>);
    claims.find(|claim| claim.metadata.name.as_deref() == Some(&name))
}

/// Returns the instant of the next check of a workspace after the end of its holder, which may still have active pods.
pub(super) fn again(now: Timestamp, facts: &Facts) -> Option<Timestamp> {
    let may_run = matches!(facts.is_confined, Some(Ok(true) | Err(_)));
    may_run.then(|| now + jiff::SignedDuration::from_secs(1))
}
