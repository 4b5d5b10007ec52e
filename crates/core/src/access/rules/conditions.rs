//! The rules about other users, the servers of change tickets, and time.

use oz_api::conditions;

use super::stop::{denied, judgement, requester};
use super::{Held, HeldFacts, Passed, Proposal, Rule, StopOf};
use crate::access::approval;
use crate::access::fact::Fact;
use crate::access::facts::ReviewLimit;
use crate::access::on_call;
use crate::access::ticket::{self, Fresh, Ticket};
use crate::lifecycle::{End, Stop};

/// The declared emergency has valid terms.
pub(super) struct EmergencyTerms;

impl<P: Proposal> Rule<P> for EmergencyTerms {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        passed.emergency = proposal.emergency().map_err(Stop::Wait)?;
        Ok(())
    }
}

/// The requester may have one more object of this kind.
pub(super) struct Capacity;

impl<P: Proposal> Rule<P> for Capacity {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        proposal.capacity(requester(proposal, passed)?)
    }
}

/// The checks of the change ticket accepted it, after the creation of the object: approvers are not asked about a request
/// with an invalid ticket.
pub(super) struct TicketChecked;

impl<P: Proposal> Rule<P> for TicketChecked {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        settle(proposal, Fresh::SinceCreated, passed).map(drop)
    }
}

/// The checks of the change ticket accept it now.
pub(super) struct TicketStillAccepted;

impl<P: Proposal> Rule<P> for TicketStillAccepted {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        passed.ticket = settle(proposal, Fresh::Now, passed)?;
        Ok(())
    }

    fn while_granted(&self, held: &dyn Held, facts: &HeldFacts<'_>) -> Option<End> {
        ticket::ended(facts.now, held.ticket()?, facts.tickets)
    }
}

fn settle<P: Proposal>(
    proposal: &P,
    fresh: Fresh,
    passed: &mut Passed,
) -> Result<Option<Ticket>, StopOf<P>> {
    let Some((ticket, tickets)) = proposal.ticket(judgement(proposal)) else {
        return Ok(None);
    };
    let known = proposal.known();
    let times = (known.now, known.created);
    ticket::settled(times, ticket, tickets, fresh, &mut passed.facts).map(Some)
}

/// The required approvals are given, or replaced by on-call checks. An emergency needs none.
pub(super) struct Approved;

impl<P: Proposal> Rule<P> for Approved {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        let needed = proposal.needs_approval(judgement(proposal)) && passed.emergency.is_none();
        passed.needs_approval = needed;
        if needed {
            let approvals = proposal.approvals();
            let now = proposal.known().now;
            passed.approvals = approval::settled(now, approvals, &mut passed.facts)?;
            passed.on_call = approvals.and_then(|approvals| approvals.on_call.clone());
        }
        Ok(())
    }

    fn while_granted(&self, held: &dyn Held, facts: &HeldFacts<'_>) -> Option<End> {
        let (requester, on_call) = held.on_call()?;
        on_call::ended(facts.now, requester, on_call, facts.tickets)
    }
}

/// The window is open.
pub(super) struct Window;

impl<P: Proposal> Rule<P> for Window {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        proposal.window(passed)
    }
}

/// The requester has few enough unreviewed emergencies for another one.
pub(super) struct Reviews;

impl<P: Proposal> Rule<P> for Reviews {
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
        let requester = requester(proposal, passed)?;
        let Some(terms) = &passed.emergency else {
            return Ok(());
        };
        match proposal.known().unreviewed {
            None => {
                let limit = ReviewLimit {
                    requester: requester.clone(),
                    most: terms.most,
                };
                Err(P::ask_reviews(limit).map_or_else(no_emergencies, Stop::Need))
            }
            Some(Err(failure)) => Err(Stop::Wait(failure.clone())),
            Some(Ok(uids)) => terms.has_room(requester, uids).map_err(|denial| {
                let message = denial.message.clone();
                let failed = Fact::fails(conditions::EMERGENCY, denial.reason, message);
                passed.facts.push(failed);
                denied(denial.reason, denial.message)
            }),
        }
    }
}

/// Returns the state of an emergency of a kind that has none.
fn no_emergencies<S, Q>() -> Stop<S, Q> {
    let message = "objects of this kind cannot be emergencies; create it without spec.emergency";
    denied("EmergencyNotSupported", message.to_owned())
}
