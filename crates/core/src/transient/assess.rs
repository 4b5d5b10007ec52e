//! The assessment of a transient binding. All other code follows its result.

use jiff::Timestamp;
use oz_api::{EndReason, Phase, labels};

use super::facts::{Assessment, ESTABLISHED, Facts, Need, Otherwise, Question, State};
use super::grant::Grant;
use super::kind::{Kind, StoredBinding, Transient};
use super::proposal::BindingProposal;
use crate::access::approval;
use crate::access::lock::Access;
use crate::access::rules::{self, Passed};
use crate::controller::Live;
use crate::lifecycle::drift::{self, Drift};
use crate::lifecycle::revoke::still_gives_access;
use crate::lifecycle::{self, End, Stop, seal};

/// Returns the objects of `live` that belong to this object: those with a decision of oz for it, those with its owner
/// reference, which Kubernetes deletes with it anyway, and the object with the UID in its status. Labels are no proof,
/// as other clients can write them.
pub(super) fn ours(
    keys: &crate::lifecycle::seal::Keys,
    binding: &StoredBinding<'_>,
    live: &[Live],
) -> Vec<Live> {
    let uid = binding.uid();
    let told = binding
        .status
        .and_then(|status| status.binding_uid.as_ref());
    let belongs = |live: &&Live| {
        Grant::open(keys, live, &binding.api_version, uid).is_some()
            || drift::is_owned(&live.object.metadata, uid)
            || (told.is_some() && live.object.metadata.uid.as_ref() == told)
    };
    live.iter().filter(belongs).cloned().collect()
}

impl<K: Kind> Transient<K> {
    /// Assesses an object.
    pub(super) fn assess(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        known: &Facts,
        live: &[Live],
    ) -> Result<Assessment, Need> {
        let terms = binding.terms.as_ref();
        let waits_until = terms.map_or(now, |terms| terms.gives_up(binding.created()));
        if let Some(state) = self.after_activation(now, binding, known, live) {
            return Ok(Assessment::new(state, waits_until));
        }
        let mut assessment = Assessment::new(State::Over, waits_until);
        let decided = self.undecided(now, binding, known, &mut assessment);
        assessment.state = match decided {
            Ok(grant) => State::Grantable(Box::new(grant)),
            Err(Otherwise::State(state)) => state,
            Err(Otherwise::Need(question)) => {
                return Err(Need {
                    question,
                    until: assessment.waits_until,
                });
            }
        };
        Ok(assessment)
    }

    /// Returns the state of an object with a binding or an end; `None` for other objects.
    fn after_activation(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        known: &Facts,
        live: &[Live],
    ) -> Option<State> {
        let decided = live.iter().find_map(|live| {
            let grant = Grant::open(&self.keys, live, &binding.api_version, binding.uid())?;
            Some((grant, live))
        });
        let status = binding.status;
        let phase = status.map_or(Phase::Pending, |status| status.phase);
        if phase.is_terminal() {
            return Some(State::Over);
        }
        let grant = decided.as_ref().map(|(grant, _)| Box::new(grant.clone()));
        let deleted = binding.metadata.deletion_timestamp.is_some();
        let until = match &grant {
            Some(grant) => Some(grant.until),
            None => status.and_then(|status| status.expires_at),
        };
        // What a lock or a change ticket began to end it ends, whatever became of the lock or the ticket.
        let begun = status.and_then(|status| status.ending.clone());
        let locked = begun.filter(|ending| {
            use EndReason::{Locked, TicketCheckUnavailable, TicketClosed};
            [Locked, TicketClosed, TicketCheckUnavailable].contains(&ending.reason)
        });
        // One that is deleted ends as such, over or not.
        let begun = deleted.then_some(End::DELETED).or(locked.map(End::from));
        if let Some(end) = lifecycle::due(now, begun, until, false) {
            return Some(State::Ending(end, grant));
        }
        let lock = grant.as_ref().and_then(|grant| {
            let subjects = &grant.subjects;
            let access = Access::bound(&grant.requester, subjects, binding.namespace());
            known.locks.against(&access, now)
        });
        if let Some(lock) = lock {
            return Some(State::Ending(lock.end(), grant));
        }
        let is_retired = || {
            let mut found = live.iter().map(|live| &live.object.metadata);
            found.any(|metadata| seal::is_retired_on(metadata, labels::GRANT))
        };
        if grant.is_none() && phase == Phase::Active && is_retired() {
            return Some(State::Ending(End::seal_retired(), None));
        }
        let drift = match &decided {
            Some((grant, _)) if grant.spec_digest != binding.spec_digest => Some(Drift::Spec),
            Some((grant, live)) => grant.drift(live),
            None if phase == Phase::Active => {
                Some(Drift::BindingOrDecision(binding.name().to_owned()))
            }
            None => None,
        };
        match (drift, grant) {
            (Some(drift), grant) => Some(State::Ending(End::drift(drift), grant)),
            (None, grant) => grant.map(|grant| match grant.lost(now, &known.tickets) {
                Some(end) => State::Ending(end, Some(grant)),
                None => State::Granted(grant),
            }),
        }
    }

    /// Assesses an object without a binding.
    fn undecided(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        known: &Facts,
        assessment: &mut Assessment,
    ) -> Result<Grant, Otherwise> {
        let proposal = BindingProposal::new(self, now, binding, known);
        if let Some(approvals) = &proposal.approvals {
            assessment.approval = Some(approvals.status.clone());
            assessment.unlocked_at = approvals.unlocked_at;
        }
        let mut passed = Passed::default();
        let decided = rules::before_grant(&proposal, &mut passed);
        let facts = std::mem::take(&mut passed.facts).into_iter();
        let established = facts.filter(|fact| ESTABLISHED.contains(&fact.type_));
        assessment.facts = established.collect();
        if let (Err(Stop::Wait(failure)), Some(approvals)) = (&decided, &proposal.approvals)
            && failure.reason == approval::WAITING
        {
            assessment.waits_until = assessment.waits_until.min(approvals.status.until);
        }
        decided?;
        let grant = proposal.offer(passed)?;
        assessment.facts.extend(grant.emergency_fact());
        let read = known.confirmed.as_ref();
        approval::confirmed(proposal.approvals.as_ref(), read, Question::Approvals)?;
        Ok(grant)
    }

    /// Checks whether an object still gives access.
    pub(super) fn in_effect(&self, binding: &StoredBinding<'_>, live: &[Live]) -> bool {
        let ours = ours(&self.keys, binding, live);
        ours.iter().any(still_gives_access)
    }
}

/// Returns the reason in conditions and audit records of an end.
pub(super) fn end_reason(end: &End) -> &'static str {
    end.reason.into()
}

/// Returns the message for users about an end.
pub(super) fn end_message(end: &End) -> String {
    match end.reason {
        EndReason::Expired => "the window has ended".to_owned(),
        EndReason::NeverActive => "the window ended before the binding could be created".to_owned(),
        EndReason::ApprovalTimedOut => end.detail().to_owned(),
        EndReason::Deleted => "revoked: the object was deleted".to_owned(),
        _ => format!("revoked: {}", end.detail()),
    }
}
