//! The change ticket and the emergency of a run: the queries about the ticket, the end of a run whose ticket is closed, and
//! the conditions and the event of both.

use jiff::Timestamp;
use oz_api::harness::{HarnessRun, HarnessRunStatus, RunPhase};
use oz_api::{EndReason, conditions};
use oz_core::access::status::Fact;
use oz_core::access::{approval, emergency, ticket};
use oz_core::controller::{Failure, Plan, Transition};

use super::Runs;
use super::decided::Decided;
use super::existing::RunEnd;
use super::facts::Facts;
use super::proposal::RunProposal;
use crate::stored::StoredObject;

/// The reason of a run that ended because its change ticket was closed: the name of [`EndReason::TicketClosed`].
pub(super) const TICKET_CLOSED: &str = "TicketClosed";
/// The reason of a run that ended because no server responded about its change ticket for a long time: the name of
/// [`EndReason::TicketCheckUnavailable`].
pub(super) const TICKET_UNANSWERED: &str = "TicketCheckUnavailable";
/// The reason of a run whose requester has too many unreviewed emergencies.
const TOO_MANY_REVIEWS: &str = "TooManyOpenReviews";
/// The reason of an emergency without audit records in the cluster, from which reviews are created.
const REVIEWS_UNAVAILABLE: &str = "ReviewsUnavailable";

impl Runs {
    /// Adds the queries about the change ticket of a run that waits for a response about it.
    pub(super) fn check_ticket(
        &self,
        now: Timestamp,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
        obstacle: &Failure,
        plan: Plan,
    ) -> Plan {
        if !ticket::is_awaited(obstacle.reason) {
            return plan;
        }
        match RunProposal::new(self, now, run, facts).named_ticket() {
            Some(ticket) => {
                let times = (now, run.identity.created);
                ticket::wait_for(times, run.uid(), (&ticket, &facts.tickets), plan)
            }
            None => plan,
        }
    }
}

/// Adds the queries about the change ticket of a run that has begun.
pub(super) fn keep_ticket(now: Timestamp, decided: &Decided, facts: &Facts, plan: Plan) -> Plan {
    match &decided.ticket {
        Some(ticket) => ticket::keep(now, &decided.run.uid, ticket, &facts.tickets, plan),
        None => plan,
    }
}

/// Returns the end of a run that has begun, if its change ticket was closed, or if no server has responded about it for
/// too long.
pub(super) fn end_by_ticket(now: Timestamp, decided: &Decided, facts: &Facts) -> Option<RunEnd> {
    let end = ticket::ended(now, decided.ticket.as_ref()?, &facts.tickets)?;
    let reason: &'static str = end.reason.into();
    Some(RunEnd::new(RunPhase::Cancelled, reason, end.detail()))
}

/// Returns the conditions of the change ticket and of the emergency of a run that begins or has begun.
pub(super) fn facts(decided: &Decided) -> impl Iterator<Item = Fact> {
    let ticket = decided.ticket.as_ref().map(ticket::fact);
    let emergency = decided.emergency.as_ref().map(emergency::fact);
    ticket.into_iter().chain(emergency)
}

/// Returns the type of the condition that is False while a run waits for this reason, if it waits for its change ticket or
/// its emergency.
pub(super) fn waits_for(reason: &str) -> Option<&'static str> {
    match reason {
        ticket::WAITING | ticket::AWAY | ticket::UNKNOWN => Some(conditions::TICKET_ACCEPTED),
        REVIEWS_UNAVAILABLE => Some(conditions::EMERGENCY),
        _ => None,
    }
}

/// Returns the type of the condition because of which a run ends, if it ends because of its approvals, its change ticket or
/// its emergency.
pub(super) fn failed_condition(end: &RunEnd) -> Option<&'static str> {
    let timed_out: &'static str = EndReason::ApprovalTimedOut.into();
    match end.reason.as_str() {
        ticket::REFUSED | TICKET_CLOSED | TICKET_UNANSWERED => Some(conditions::TICKET_ACCEPTED),
        TOO_MANY_REVIEWS => Some(conditions::EMERGENCY),
        reason if [approval::DENIED, timed_out].contains(&reason) => Some(conditions::APPROVED),
        _ => None,
    }
}

/// Returns the event of an emergency, once it begins.
pub(super) fn event(
    before: Option<&HarnessRunStatus>,
    after: &HarnessRunStatus,
) -> Option<Transition> {
    let declared = |status: &HarnessRunStatus| {
        let found = conditions::find(&status.conditions, conditions::EMERGENCY)?;
        (found.status == "True").then(|| found.message.clone())
    };
    let note = declared(after).filter(|_| before.and_then(declared).is_none())?;
    Some(Transition {
        warning: true,
        reason: "EmergencyGranted",
        action: "Start",
        note,
        due: None,
    })
}
