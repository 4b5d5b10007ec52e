//! The change ticket and the emergency of a run: the queries about the ticket, the end of a run whose ticket is closed, and
//! the conditions and the event of both.

use jiff::Timestamp;
use oz_api::harness::{HarnessRun, HarnessRunStatus};
use oz_api::{EndReason, conditions};
use oz_core::access::status::Fact;
use oz_core::access::{approval, emergency, ticket};
use oz_core::controller::{Failure, Plan, Transition};
use oz_core::lifecycle::window::has_come;

use super::Runs;
use super::decided::Decided;
use super::existing::RunEnd;
use super::facts::{Facts, Otherwise, refused};
use super::proposal::RunProposal;
use crate::stored::StoredObject;

/// The reason of a denied run: its requester has too many unreviewed emergencies.
const TOO_MANY_REVIEWS: &str = "TooManyOpenReviews";
/// The reason of an emergency without audit records in the cluster, from which reviews are created.
const REVIEWS_UNAVAILABLE: &str = "ReviewsUnavailable";

impl Runs {
    /// Adds the queries about the change ticket of a run that waits for a response about it, and the instant at which the run
    /// stops waiting.
    pub(super) fn check_ticket(
        &self,
        now: Timestamp,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
        obstacle: &Failure,
        plan: Plan,
    ) -> Plan {
        if !is_for_ticket(obstacle) {
            return plan;
        }
        let proposal = RunProposal::new(self, now, run, facts);
        let plan = plan.wake_at(proposal.ticket_until());
        let named = proposal.named_ticket();
        match named.filter(|_| ticket::is_awaited(obstacle.reason)) {
            Some(ticket) => {
                let times = (now, run.identity.created);
                ticket::wait_for(times, run.uid(), (&ticket, &facts.tickets), plan)
            }
            None => plan,
        }
    }
}

/// Checks whether a run may continue to wait, if it waits for its change ticket: a run without an end would query the server
/// of a ticket check forever.
///
/// # Errors
/// The end of the run.
pub(super) fn may_wait(
    now: Timestamp,
    proposal: &RunProposal<'_>,
    obstacle: &Failure,
) -> Result<(), Otherwise> {
    let until = proposal.ticket_until();
    if !is_for_ticket(obstacle) || !has_come(now, until) {
        return Ok(());
    }
    let message = format!(
        "{}; the run waited for its change ticket until {until}; submit the run again",
        obstacle.message
    );
    Err(refused(obstacle.reason, message))
}

fn is_for_ticket(obstacle: &Failure) -> bool {
    waits_for(obstacle.reason) == Some(conditions::TICKET_ACCEPTED)
}

/// Adds the queries about the change ticket of a run that has begun.
pub(super) fn keep_ticket(now: Timestamp, decided: &Decided, facts: &Facts, plan: Plan) -> Plan {
    match &decided.ticket {
        Some(ticket) => ticket::keep(now, &decided.run.uid, ticket, &facts.tickets, plan),
        None => plan,
    }
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
    let reason = end.reason.as_str();
    match reason.parse() {
        Ok(EndReason::TicketClosed | EndReason::TicketCheckUnavailable) => {
            return Some(conditions::TICKET_ACCEPTED);
        }
        Ok(EndReason::ApprovalTimedOut) => return Some(conditions::APPROVED),
        _ => {}
    }
    match reason {
        ticket::REFUSED => Some(conditions::TICKET_ACCEPTED),
        TOO_MANY_REVIEWS => Some(conditions::EMERGENCY),
        approval::DENIED => Some(conditions::APPROVED),
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
