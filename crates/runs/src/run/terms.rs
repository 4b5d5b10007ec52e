//! The change ticket and the emergency of a run: the queries about the ticket, the end of a run whose ticket is closed, and
//! the conditions and the event of both.

use jiff::Timestamp;
use oz_api::harness::{HarnessRun, HarnessRunStatus};
use oz_api::{EndReason, conditions};
use oz_core::access::status::Fact;
use oz_core::access::ticket::{self, Ticket};
use oz_core::access::{approval, emergency};
use oz_core::controller::{Failure, Plan, Transition};
use oz_core::lifecycle::window::has_come;

use super::decided::Decided;
use super::existing::RunEnd;
use super::facts::{Facts, Otherwise, refused};
use super::proposal::RunProposal;
use crate::stored::StoredObject;

/// The reason of a denied run: its requester has too many unreviewed emergencies.
const TOO_MANY_REVIEWS: &str = "TooManyOpenReviews";
/// The reason of an emergency without audit records in the cluster, from which reviews are created.
const REVIEWS_UNAVAILABLE: &str = "ReviewsUnavailable";

/// The reason of an emergency that did not begin in time.
const EMERGENCY_TIMED_OUT: &str = "EmergencyTimedOut";

/// The change ticket and the deadline of a run that has not begun.
#[derive(Default)]
pub(super) struct Awaited {
    /// The instant at which the run stops waiting, if there is one.
    until: Option<Timestamp>,
    /// The change ticket, and the name of the user of the run, if the run waits for a response about the ticket.
    ticket: Option<(Ticket, String)>,
}

impl Awaited {
    /// Creates it for a run that may still begin, and waits for `obstacle`, if a rule does not hold. A run without an end
    /// would query the server of a ticket check forever, wait for audit records that no component writes, or begin without
    /// approvals when its emergency no longer exists.
    ///
    /// # Errors
    /// The end of a run that has waited for too long.
    pub(super) fn new(
        now: Timestamp,
        proposal: &RunProposal<'_>,
        obstacle: Option<&Failure>,
    ) -> Result<Self, Otherwise> {
        let obstacle = obstacle.filter(|obstacle| waits_for(obstacle.reason).is_some());
        let until = proposal.waits_until(obstacle.is_some());
        let over = until.filter(|until| has_come(now, *until));
        if let Some((obstacle, until)) = obstacle.zip(over) {
            return Err(waited(obstacle, until));
        }
        if let Some(until) = over.filter(|_| proposal.is_emergency()) {
            return Err(refused(
                EMERGENCY_TIMED_OUT,
                format!(
                    "the emergency did not begin within a day of its creation (until {until}); submit the \
                     run again, without spec.emergency if the emergency no longer exists"
                ),
            ));
        }
        let obstacle = obstacle.filter(|obstacle| ticket::is_awaited(obstacle.reason));
        Ok(Self {
            until: until.filter(|_| over.is_none()),
            ticket: obstacle.and_then(|_| proposal.named_ticket()),
        })
    }

    /// Adds the queries about the change ticket, and the instant at which the run stops waiting.
    pub(super) fn plan(
        &self,
        now: Timestamp,
        run: &StoredObject<'_, HarnessRun>,
        facts: &Facts,
        mut plan: Plan,
    ) -> Plan {
        if let Some(until) = self.until {
            plan = plan.wake_at(until);
        }
        match &self.ticket {
            Some((ticket, user)) => {
                let (times, asker) = ((now, run.identity.created), (run.uid(), user.as_str()));
                ticket::wait_for(times, asker, (ticket, &facts.tickets), plan)
            }
            None => plan,
        }
    }
}

/// Returns the end of a run that has waited for its change ticket or for its emergency for too long.
fn waited(obstacle: &Failure, until: Timestamp) -> Otherwise {
    let Failure {
        reason, message, ..
    } = obstacle;
    refused(
        reason,
        format!("{message}; the run waited until {until}; submit the run again"),
    )
}

/// Adds the queries about the change ticket of a run that has begun.
pub(super) fn keep_ticket(now: Timestamp, decided: &Decided, facts: &Facts, plan: Plan) -> Plan {
    let asker = (decided.run.uid.as_str(), decided.submitter.user.as_str());
    match &decided.ticket {
        Some(ticket) => ticket::keep(now, asker, ticket, &facts.tickets, plan),
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
        ticket::WAITING | ticket::AWAY | ticket::UNKNOWN | ticket::TOO_MANY => {
            Some(conditions::TICKET_ACCEPTED)
        }
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
        TOO_MANY_REVIEWS | REVIEWS_UNAVAILABLE | EMERGENCY_TIMED_OUT => Some(conditions::EMERGENCY),
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
