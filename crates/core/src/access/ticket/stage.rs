//! The responses of servers to ticket checks, and their effect.
//!
//! A server may report that a change ticket is not open: a request is denied, and a grant ends at once. A
//! server may also not respond, for any cause: with `Fail` a request waits for as long as it waits for
//! anything, and a grant ends when that has lasted for [`LONGEST_AWAY`] times the check's interval; with
//! `Ignore` a request is granted, and a grant continues. Nothing extends a grant. The checks run in a port
//! with separate tasks ([`Ask`]): nothing here waits for a response.
//!
//! See docs/adr/0031-a-server-of-tickets-that-says-nothing.md.

use jiff::{SignedDuration, Timestamp};
use oz_api::{EndReason, Phase, conditions};

use super::super::kind::{FactsOf, Kind};
use super::super::request::StoredRequest;
use super::super::status::Fact;
use super::Ticket;
use crate::controller::{Failure, Plan, Step};
use crate::lifecycle::window::{after, has_come};
use crate::lifecycle::{End, Stop};
use crate::tickets::{Answer, Ask, CheckTerms, FailurePolicy, Said, Subject, Tickets};

/// The reason of a request while its change ticket is checked.
pub const WAITING: &str = "TicketCheckPending";
/// The reason of a request for which no server responds about its change ticket.
pub const AWAY: &str = "TicketCheckUnavailable";
/// The reason of a request that names a check which is not configured.
pub const UNKNOWN: &str = "TicketCheckUnknown";
/// The reason of a request of which the change ticket is not accepted.
pub const REFUSED: &str = "TicketRefused";
/// The reason of a request with a change ticket that no server is asked about, because too many are being checked.
pub const TOO_MANY: &str = "TooManyTickets";

/// The number of intervals of its check for which a grant lasts while no server responds about its change
/// ticket.
const LONGEST_AWAY: i32 = 5;
/// The time until a request that waits for a response is reconciled again, and until a server that did not
/// respond is asked again.
const AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// The required age of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::access) enum Fresh {
    /// The check was requested after the creation of the request.
    SinceCreated,
    /// The response is, in addition, no older than the check's interval plus the time that its server has to
    /// respond: a response that took all of that time is valid.
    Now,
}

/// Returns the change ticket of an object that was created at `created`, when all its checks accept it.
///
/// # Errors
/// The state that the request is in instead.
pub(in crate::access) fn settled<S, Q>(
    (now, created): (Timestamp, Timestamp),
    mut ticket: Ticket,
    known: &Tickets,
    fresh: Fresh,
    facts: &mut Vec<Fact>,
) -> Result<Ticket, Stop<S, Q>> {
    let mut waits = None;
    for check in &ticket.checks {
        let Some(terms) = known.terms(check) else {
            let message = format!(
                "ticket {} requires check {check}, which the operator does not have; have the \
                 administrators of oz set tickets.checks.{check}, or the template's owners name \
                 another check",
                ticket.name
            );
            waits.get_or_insert((UNKNOWN, message));
            continue;
        };
        let said = known.said.get(check);
        let said = said.filter(|said| counts((now, created), said, terms, fresh));
        match said.map(|said| &said.answer) {
            Some(Answer::Accepted) => {}
            // One negative response is sufficient, also while other servers have not responded yet.
            Some(Answer::Refused(why)) => return Err(refused(&ticket, check, why, facts)),
            Some(Answer::Away(_)) if terms.failure_policy == FailurePolicy::Ignore => {
                ticket.unanswered.push(check.clone());
            }
            Some(Answer::Away(why)) => {
                let message = format!(
                    "check {check} does not respond about ticket {}, and is retried: {why}",
                    ticket.name
                );
                waits.get_or_insert((AWAY, message));
            }
            None => {
                let message = format!("check {check} is checking ticket {}", ticket.name);
                waits.get_or_insert((WAITING, message));
            }
        }
    }
    if let Some((reason, message)) = waits {
        let failed = Fact::fails(conditions::TICKET_ACCEPTED, reason, message.clone());
        facts.push(failed);
        return Err(Stop::Wait(Failure::invalid(reason, message)));
    }
    if fresh == Fresh::Now {
        facts.push(fact(&ticket));
    }
    Ok(ticket)
}

fn refused<S, Q>(ticket: &Ticket, check: &str, why: &str, facts: &mut Vec<Fact>) -> Stop<S, Q> {
    let message = format!(
        "check {check} does not accept ticket {}: {why}; name another in spec.ticket, or have this \
         ticket opened and create the request again",
        ticket.name
    );
    let failed = Fact::fails(conditions::TICKET_ACCEPTED, REFUSED, message.clone());
    facts.push(failed);
    Stop::Refuse(Phase::Denied, Failure::invalid(REFUSED, message))
}

/// Updates the condition of a change ticket about which no server was asked, because too many are being checked.
pub fn limit(facts: &mut [Fact], failure: Option<&Failure>) {
    let Some(failure) = failure.filter(|failure| failure.reason == TOO_MANY) else {
        return;
    };
    let is_pending = |fact: &&mut Fact| fact.type_ == conditions::TICKET_ACCEPTED && !fact.holds;
    for fact in facts.iter_mut().filter(is_pending) {
        fact.reason = TOO_MANY;
        fact.message.clone_from(&failure.message);
    }
}

/// Checks whether a response is valid for an object that was created at `created`.
pub(in crate::access) fn counts(
    (now, created): (Timestamp, Timestamp),
    said: &Said,
    terms: CheckTerms,
    fresh: Fresh,
) -> bool {
    let good_for = terms.interval + terms.timeout;
    let recent = fresh == Fresh::SinceCreated || !has_come(now, after(said.asked_at, good_for));
    has_come(said.asked_at, created) && recent
}

/// Returns the condition that a change ticket was accepted, or that no server responded and the check
/// permitted that.
#[must_use]
pub fn fact(ticket: &Ticket) -> Fact {
    let name = &ticket.name;
    let message = match (&*ticket.checks, &*ticket.unanswered) {
        ([], _) => format!("Ticket {name}, without a check"),
        (checks, []) => format!("Ticket {name} is accepted by {}", checks.join(", ")),
        (_, unanswered) => format!(
            "Ticket {name} passes without a check: {} did not respond, and permits that",
            unanswered.join(", ")
        ),
    };
    Fact {
        reason: match ticket.unanswered.is_empty() {
            true => conditions::reason::SUCCESS,
            false => AWAY,
        },
        ..Fact::holds(conditions::TICKET_ACCEPTED, message)
    }
}

/// Returns the reason why a grant ends before its expiry: its change ticket was closed, or no server
/// responded for too long.
#[must_use]
pub fn ended(now: Timestamp, ticket: &Ticket, known: &Tickets) -> Option<End> {
    let name = &ticket.name;
    let checks = ticket.checks.iter().map(|check| {
        let terms = known.terms(check).unwrap_or(CheckTerms::UNKNOWN);
        (check, known.said.get(check), terms)
    });
    Some(match lost(now, checks)? {
        (check, Lost::Refused(why)) => End::ticket_closed(format!(
            "check {check} does not accept ticket {name} any more: {why}"
        )),
        (check, Lost::Unanswered(until, why)) => End::ticket_unanswered(format!(
            "check {check} has not responded about ticket {name} until {until}: {why}"
        )),
    })
}

/// The response of a check because of which a grant ends.
pub(in crate::access) enum Lost<'a> {
    /// The server does not accept the subject, for this reason.
    Refused(&'a str),
    /// The server has not responded until this instant, for this reason.
    Unanswered(Timestamp, &'a str),
}

/// Returns the check because of which a grant ends. A refusal takes precedence over a missing response.
pub(in crate::access) fn lost<'a, C>(
    now: Timestamp,
    mut checks: impl Iterator<Item = (C, Option<&'a Said>, CheckTerms)> + Clone,
) -> Option<(C, Lost<'a>)> {
    let refused = checks
        .clone()
        .find_map(|(check, said, _)| match &said?.answer {
            Answer::Refused(why) => Some((check, Lost::Refused(why))),
            Answer::Accepted | Answer::Away(_) => None,
        });
    refused.or_else(|| {
        checks.find_map(|(check, said, terms)| {
            let said = said?;
            let Answer::Away(why) = &said.answer else {
                return None;
            };
            let until = gives_up(said, terms).filter(|until| has_come(now, *until))?;
            Some((check, Lost::Unanswered(until, why)))
        })
    })
}

/// Returns the instant at which a grant ends while no server responds about its subject.
fn gives_up(said: &Said, terms: CheckTerms) -> Option<Timestamp> {
    let longest = terms.interval * LONGEST_AWAY;
    let since = said.away_since?;
    (terms.failure_policy == FailurePolicy::Fail).then(|| after(since, longest))
}

/// Returns the condition of a change ticket because of which a grant ends; `None` for another end.
#[must_use]
pub fn lost_fact(end: &End) -> Option<Fact> {
    let reasons = [EndReason::TicketClosed, EndReason::TicketCheckUnavailable];
    reasons.contains(&end.reason).then(|| {
        let detail = end.detail().to_owned();
        Fact::fails(conditions::TICKET_ACCEPTED, end.reason.into(), detail)
    })
}

/// Returns the plan of a request that waits for a response: its checks, and the time of the next pass.
pub(in crate::access) fn wait<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &StoredRequest<'_>,
    known: &FactsOf<K>,
    reason: &str,
    plan: Plan,
) -> Plan {
    if !is_awaited(reason) {
        return plan;
    }
    let Ok(stamp) = request.stamp(kind.keys()) else {
        return plan;
    };
    let (judgement, template) = (stamp.judgement.as_ref(), known.template.as_deref());
    let ticket = template.and_then(|template| super::terms(request.ask, judgement, template));
    let times = (now, request.created());
    let asker = (request.uid(), stamp.requester.user.as_str());
    match ticket {
        Some(ticket) => wait_for(times, asker, (&ticket, &known.tickets), plan),
        None => plan,
    }
}

/// Checks whether an object with this reason waits for a response about its change ticket.
#[must_use]
pub fn is_awaited(reason: &str) -> bool {
    [WAITING, AWAY].contains(&reason)
}

/// Returns the plan of an object, created at `created`, that waits for a response about its change ticket: its checks, and
/// the time of the next pass. `asker` has the UID of the object and the name of its user.
#[must_use]
pub fn wait_for(
    (now, created): (Timestamp, Timestamp),
    asker: (&str, &str),
    (ticket, known): (&Ticket, &Tickets),
    plan: Plan,
) -> Plan {
    let due = |check: &&String| {
        let Some(terms) = known.terms(check) else {
            return false;
        };
        let Some(said) = known.said.get(*check) else {
            return true;
        };
        let away = matches!(said.answer, Answer::Away(_));
        !counts((now, created), said, terms, Fresh::Now)
            || away && has_come(now, after(said.asked_at, AGAIN))
    };
    let due = ticket.checks.iter().filter(due);
    let asks = due.map(|check| ask(check, ticket, asker, true));
    plan.then(asks).wake_at(after(now, AGAIN))
}

/// Returns the plan of a grant while it lasts: its checks, and the time of the next pass. `asker` has the UID of the object
/// and the name of its user.
#[must_use]
pub fn keep(
    now: Timestamp,
    asker: (&str, &str),
    ticket: &Ticket,
    known: &Tickets,
    plan: Plan,
) -> Plan {
    let checks = ticket.checks.iter().map(|check| {
        let terms = known.terms(check).unwrap_or(CheckTerms::UNKNOWN);
        (
            ask(check, ticket, asker, false),
            known.said.get(check),
            terms,
        )
    });
    repeat(now, checks, plan)
}

/// Adds the queries of a grant that are due, and the instants of the next passes: the next query of each check, and the
/// end of the grant if its server does not respond.
pub(in crate::access) fn repeat<'a>(
    now: Timestamp,
    checks: impl Iterator<Item = (Step, Option<&'a Said>, CheckTerms)>,
    mut plan: Plan,
) -> Plan {
    let mut asks = Vec::new();
    for (ask, said, terms) in checks {
        let (is_due, next) = due(now, said, terms);
        if is_due {
            asks.push(ask);
        }
        plan = plan.wake_at(next);
        if let Some(until) = said.and_then(|said| gives_up(said, terms)) {
            plan = plan.wake_at(until);
        }
    }
    plan.then(asks)
}

/// Checks whether the server of a check must be asked again at `now`, and returns the instant of the next query.
pub(in crate::access) fn due(
    now: Timestamp,
    said: Option<&Said>,
    terms: CheckTerms,
) -> (bool, Timestamp) {
    let next = said.map_or(now, |said| after(said.asked_at, terms.interval));
    match has_come(now, next) {
        true => (true, after(now, terms.interval)),
        false => (false, next),
    }
}

fn ask(check: &str, ticket: &Ticket, (uid, user): (&str, &str), waits: bool) -> Step {
    Step::from(Ask {
        check: check.to_owned(),
        subject: Subject::Ticket(ticket.name.clone()),
        request: uid.to_owned(),
        user: user.to_owned(),
        waits,
    })
}

impl Tickets {
    /// Returns the settings of a check that decisions depend on; `None` if it is not configured. If the
    /// configured checks are unknown, each counts as configured.
    pub(in crate::access) fn terms(&self, check: &str) -> Option<CheckTerms> {
        match &self.checks {
            None => Some(CheckTerms::UNKNOWN),
            Some(checks) => checks.get(check).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_of_pending_ticket_reports_that_too_many_are_checked() {
        let pending = Fact::fails(conditions::TICKET_ACCEPTED, WAITING, "jira is checking");
        let accepted = Fact::holds(conditions::TICKET_ACCEPTED, "accepted by jira");
        let other = Fact::fails(conditions::APPROVED, WAITING, "waiting for bob");
        let too_many = Failure::transient(TOO_MANY, "1000 are being checked for user alice");
        let unreachable = Failure::transient("Unreachable", "no response");
        let limited = Fact::fails(conditions::TICKET_ACCEPTED, TOO_MANY, &*too_many.message);
        for (before, failure, after) in [
            (&pending, Some(&too_many), &limited),
            (&pending, Some(&unreachable), &pending),
            (&pending, None, &pending),
            (&accepted, Some(&too_many), &accepted),
            (&other, Some(&too_many), &other),
        ] {
            let mut facts = [before.clone()];
            limit(&mut facts, failure);
            assert_eq!(
                facts.as_slice(),
                std::slice::from_ref(after),
                "{before:?} {failure:?}"
            );
        }
    }
}
