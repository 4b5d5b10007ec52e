//! The rules about the object itself and its author.

use oz_api::conditions;

use super::stop::{refused, requester};
use super::{Held, HeldFacts, Passed, Proposal, Rule, StopOf};
use crate::access::fact::Fact;
use crate::access::stamp::StampError;
use crate::lifecycle::{End, Stop};

/// The spec is valid.
pub(super) struct Spec;

impl<P: Proposal> Rule<P> for Spec {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        proposal.spec(&mut passed.facts)
    }
}

/// The webhook stamped it with the user who created it.
pub(super) struct Stamped;

impl<P: Proposal> Rule<P> for Stamped {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        let requester = requester(proposal, passed)?;
        passed.facts.push(Fact::holds(
            conditions::REQUESTER_VERIFIED,
            format!("Requested by {}", requester.user),
        ));
        Ok(())
    }
}

/// No lock blocks the access.
pub(super) struct NotLocked;

impl<P: Proposal> Rule<P> for NotLocked {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        let requester = requester(proposal, passed)?;
        let known = proposal.known();
        let admitted = known.locks.admit(&proposal.access(requester), known.now);
        admitted.map_err(Stop::from)
    }

    fn while_granted(&self, held: &dyn Held, facts: &HeldFacts<'_>) -> Option<End> {
        let lock = facts.locks.against(&held.access(), facts.now)?;
        Some(lock.end())
    }
}

/// No other object has the same stamp.
pub(super) struct FirstStamp;

impl<P: Proposal> Rule<P> for FirstStamp {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        match proposal.known().same_stamp {
            None => Err(Stop::Need(P::ask_same_stamp())),
            Some(None) => Ok(()),
            Some(Some(other)) => {
                // Nothing else is reported about a copy.
                passed.facts.clear();
                let error = StampError::Replayed(other.clone());
                Err(refused(passed, error.reason(), error.to_string()))
            }
        }
    }
}
