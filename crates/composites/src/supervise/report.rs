//! Reporting: the status and the events of a composite.

use jiff::Timestamp;
use oz_api::composite::CompositeControllerStatus;
use oz_api::conditions;
use oz_core::controller::{Decision, Outcome, Transition};

use super::composites::Composites;
use super::run::{PORT, Runs};
use super::survey::PolicyFound;
use crate::guard::Tally;
use crate::since::{Refused, VERSION};
use crate::source::Source;

/// Condition: the declaration is valid.
pub const ACCEPTED: &str = "Accepted";
/// Condition: the account has the required rights.
pub const PERMITTED: &str = "Permitted";
/// Condition: the composite runs.
pub const RUNNING: &str = "Running";

/// The state of a composite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    pub(super) accepted: Option<(bool, &'static str, String)>,
    pub(super) permitted: Option<(bool, &'static str, String)>,
    pub(super) policy: Option<PolicyFound>,
    /// The policy that an earlier version of oz accepted, and this one refuses.
    pub(super) refused: Option<Refused>,
    /// Whether the policy may delete children that it does not return, although it is guarded.
    pub(super) trusted: bool,
    /// Whether a change that the policy requests is withheld.
    pub(super) withholds: bool,
    pub(super) tally: Option<Tally>,
}

impl<S: Source> Composites<S> {
    /// Returns the status of a composite after a pass.
    pub(super) fn status_of(
        &self,
        now: Timestamp,
        object: &S,
        decision: &Decision<Standing>,
        outcome: &Outcome,
    ) -> CompositeControllerStatus {
        let mut status = object.standing().cloned().unwrap_or_default();
        let generation = object.meta().generation;
        let standing = &decision.state;
        if standing.accepted.is_none() {
            return status;
        }
        status.observed_generation = generation;
        let account = object.account(&self.accounts.default);
        status.account = Some(account.to_string());
        report_policy::<S>(&mut status, standing);
        let mut set = |type_: &str, (holds, reason, message): (bool, &str, String)| {
            conditions::set(
                &mut status.conditions,
                type_,
                holds,
                reason,
                message,
                generation,
                now,
            );
        };
        let unknown = (
            false,
            "NotAccepted",
            "the composite is not accepted".to_owned(),
        );
        set(
            ACCEPTED,
            standing.accepted.clone().unwrap_or(unknown.clone()),
        );
        set(PERMITTED, standing.permitted.clone().unwrap_or(unknown));
        let uid = object.meta().uid.as_deref();
        let answer = uid.and_then(|uid| outcome.answers.get(PORT, uid));
        let runs = answer.and_then(|answer| serde_json::from_value::<Runs>(answer.clone()).ok());
        let is_running = runs.is_some_and(|runs| runs.running);
        let running = match (&outcome.failure, is_running) {
            (_, true) => (true, "Running", "parents are reconciled".to_owned()),
            (Some(failure), false) => (false, failure.reason, failure.message.clone()),
            (None, false) => (false, "Stopped", "see the other conditions".to_owned()),
        };
        set(RUNNING, running);
        status
    }
}

/// Writes the policy and the reports of the parents into a status.
fn report_policy<S: Source>(status: &mut CompositeControllerStatus, standing: &Standing) {
    status.policy_refused_since = None;
    match &standing.refused {
        // The policy is the one that the version accepted.
        Some(refused) => status.policy_refused_since = Some(refused.since.clone()),
        None => {
            let policy = standing.policy.as_ref();
            status.policy_digest = policy.map(|policy| policy.digest.clone());
            status.policy_version = policy.map(|_| VERSION.to_owned());
            status.language = policy.map(|policy| policy.language.clone());
        }
    }
    if S::COUNTS_PARENTS {
        let digits = status.policy_digest.as_deref().and_then(|digest| {
            let (_, digits) = digest.split_once(':')?;
            digits.get(..8)
        });
        status.policy = digits.map(ToOwned::to_owned);
        if let Some(tally) = &standing.tally {
            status.parents = i64::try_from(tally.parents).ok();
        }
    }
    if standing.trusted {
        status.accepted_digest.clone_from(&status.policy_digest);
    }
    let tally = standing.tally.as_ref().filter(|_| standing.withholds);
    let pending = tally.into_iter().flat_map(|tally| tally.pending.clone());
    status.pending = pending.collect();
}

/// Returns the events for the change from one status to the next.
pub(super) fn transitions(
    before: Option<&CompositeControllerStatus>,
    after: &CompositeControllerStatus,
) -> Vec<Transition> {
    let mut transitions = Vec::new();
    for type_ in [ACCEPTED, PERMITTED, RUNNING] {
        let old = before.and_then(|before| conditions::find(&before.conditions, type_));
        let Some(new) = conditions::find(&after.conditions, type_) else {
            continue;
        };
        if old.is_some_and(|old| old.status == new.status && old.message == new.message) {
            continue;
        }
        let (warning, reason) = match (type_, new.status.as_str()) {
            (ACCEPTED, "False") => (true, "NotAccepted"),
            (PERMITTED, "False") => (true, "NotPermitted"),
            (RUNNING, "True") => (false, "Running"),
            _ => continue,
        };
        transitions.push(Transition {
            warning,
            reason,
            action: "Run",
            note: new.message.clone(),
            due: None,
        });
    }
    transitions
}
