//! What several rules share: the proven author of an object, and the ways to deny it.

use oz_api::{Phase, Requester, conditions};

use super::{Passed, Proposal, StopOf};
use crate::access::fact::Fact;
use crate::access::policy::Judgement;
use crate::access::stamp::StampError;
use crate::controller::Failure;
use crate::lifecycle::Stop;

/// Returns the requester by the stamp.
pub(super) fn requester<'a, P: Proposal>(
    proposal: &'a P,
    passed: &mut Passed,
) -> Result<&'a Requester, StopOf<P>> {
    proposal
        .stamp()
        .map(|stamp| &stamp.requester)
        .map_err(|error| match error {
            StampError::Unverified(_) => {
                let failure = error.failure();
                passed.facts.push(Fact::fails(
                    conditions::REQUESTER_VERIFIED,
                    failure.reason,
                    failure.message.clone(),
                ));
                Stop::Wait(failure)
            }
            error => refused(passed, error.reason(), error.to_string()),
        })
}

/// Returns the judgement of the access policies, as sealed in the stamp.
pub(super) fn judgement<P: Proposal>(proposal: &P) -> Option<&Judgement> {
    proposal.stamp().ok()?.judgement.as_ref()
}

/// Denies an object: its requester does not get what it asks for.
pub(super) fn refused<S, Q>(
    passed: &mut Passed,
    reason: &'static str,
    message: String,
) -> Stop<S, Q> {
    let type_ = conditions::REQUESTER_VERIFIED;
    passed.facts.retain(|fact| fact.type_ != type_);
    passed
        .facts
        .push(Fact::fails(type_, reason, message.clone()));
    denied(reason, message)
}

/// Returns the state of an object that is denied for this reason.
pub(super) fn denied<S, Q>(reason: &'static str, message: String) -> Stop<S, Q> {
    Stop::Refuse(Phase::Denied, Failure::invalid(reason, message))
}
