//! Where a workspace stands, and who holds it.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::harness::{HarnessRun, Workspace, WorkspacePhase};
use oz_core::controller::{Failure, Live};

use super::Workspaces;
use super::seeding::Seeding;
use crate::isolation::Isolation;
use crate::objects::workspace_name;
use crate::pod::claim_name;
use crate::queue::{has_left, place};
use crate::stored::StoredObject;

/// What is known besides the workspace and its objects.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The runs that want it, the one that comes first first.
    pub queue: Vec<Waiting>,
    /// Whether the run that its status names as its holder exists and is not over.
    pub holder_is_live: bool,
    /// The answer to [`Question::IsConfined`].
    pub is_confined: Option<Result<bool, Failure>>,
    /// The NetworkPolicies of its namespace that may be about the pods that fill it.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
}

/// A run that wants a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub name: String,
    /// Its UID; `None` for a holder that the original recorded.
    pub uid: Option<String>,
}

/// What must be found out before a workspace goes from one run to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the NetworkPolicy of the run that held it is there still: something of it may run.
    IsConfined {
        /// The run.
        holder: Waiting,
    },
}

/// Where a workspace stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Seeding, Active, Failed or Terminating.
    pub phase: WorkspacePhase,
    /// Why it is not Active: reason and message.
    pub why: Option<(&'static str, String)>,
    /// Who holds it.
    pub holder: Holder,
    /// Whether its claim is bound.
    pub is_bound: bool,
    /// How far filling it is.
    pub seeding: Seeding,
    /// What opens more to the pods that fill it, while there are or may be some.
    pub isolation: Option<Isolation>,
}

/// Who holds a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    #[default]
    Nobody,
    /// The run that held it before.
    Same(Waiting),
    /// This one, from now on.
    New(Waiting),
}

/// The runs of its namespace that want a workspace, in the order in which they get it: the oldest first. Which of
/// two that were made within one second comes first, their UIDs say.
#[must_use]
pub fn queue<'a>(
    workspace: &Workspace,
    runs: impl IntoIterator<Item = &'a HarnessRun>,
) -> Vec<Waiting> {
    let mut wanting: Vec<&HarnessRun> = runs
        .into_iter()
        .filter(|run| wants(run, workspace) && !has_left(run))
        .collect();
    wanting.sort_by(|one, other| place(one).cmp(&place(other)));
    let waiting = |run: &HarnessRun| {
        Some(Waiting {
            name: run.metadata.name.clone()?,
            uid: Some(run.metadata.uid.clone()?),
        })
    };
    wanting.into_iter().filter_map(waiting).collect()
}

/// Whether a run is to work on a workspace: it names it, or it was made for it.
fn wants(run: &HarnessRun, workspace: &Workspace) -> bool {
    let Some(name) = &workspace.metadata.name else {
        return false;
    };
    if run.metadata.namespace != workspace.metadata.namespace {
        return false;
    }
    match (&run.spec.workspace_ref, &run.metadata.name) {
        (Some(named), _) => named == name,
        (None, Some(run_name)) => {
            let mut owners = workspace.metadata.owner_references.iter().flatten();
            workspace_name(run_name) == *name
                && owners.any(|owner| Some(&owner.uid) == run.metadata.uid.as_ref())
        }
        (None, None) => false,
    }
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

/// Whether runs can have it.
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
            "PersistentVolumeClaim {name} {what}, and what was on it with it: create another workspace"
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

/// The run that holds a workspace still; `None` if nobody does.
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

/// The claim of a workspace, if it is there.
pub(super) fn claim_of(
    workspace: &StoredObject<'_, Workspace>,
    live: &[Live],
) -> Option<PersistentVolumeClaim> {
    let name = claim_name(workspace.name());
    let mut claims = live.iter().filter_map(Live::parse::<PersistentVolumeClaim>);
    claims.find(|claim| claim.metadata.name.as_deref() == Some(&name))
}

/// When a workspace whose holder is over, but may run still, is looked at again.
pub(super) fn again(now: Timestamp, facts: &Facts) -> Option<Timestamp> {
    let may_run = matches!(facts.is_confined, Some(Ok(true) | Err(_)));
    may_run.then(|| now + jiff::SignedDuration::from_secs(1))
}
