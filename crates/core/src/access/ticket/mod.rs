//! Change tickets in the decision about a request or transient binding: whether it names one that its template and the
//! access policies accept ([`validate`]), and the responses to its ticket checks ([`stage`]), before the grant and
//! while it lasts. An emergency needs no change ticket: it is granted without a check, and reviewed
//! afterwards.

mod stage;

use oz_api::TicketConfig;
use oz_trail::Record;
use serde::{Deserialize, Serialize};

use super::ask::Ask;
use super::denial::Denial;
use super::policy::Judgement;
use crate::kinds::AccessTemplate;
use crate::validate::matching;

pub use stage::{
    AWAY, REFUSED, TOO_MANY, UNKNOWN, WAITING, ended, fact, is_awaited, keep, limit, lost_fact,
    wait_for,
};
pub(super) use stage::{Fresh, Lost, counts, due, lost, repeat, settled, wait};

/// The last part of the refusal of a request without a change ticket: the missing field.
pub const TICKET_REQUIRED: &str = "; set spec.ticket";

/// The change ticket of a grant, as it is sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// Name of the change ticket.
    pub name: String,
    /// The ticket checks that run while access lasts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    /// Checks of which the server did not respond at the time of the grant, and that permitted the grant in
    /// that case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
}

/// Checks whether a request names a change ticket as `config` requires; `who` is the source of the
/// requirement.
///
/// # Errors
/// A [`Denial`] with the reason and the next step.
pub fn validate(
    config: Option<&TicketConfig>,
    who: impl Fn() -> String,
    ask: Ask<'_>,
) -> Result<String, Denial> {
    let Some(config) = config else {
        return Ok("none is required".to_owned());
    };
    if ask.emergency {
        return Ok("an emergency needs none".to_owned());
    }
    let required = || match &config.pattern {
        Some(pattern) => format!("{} requires a ticket that matches {pattern}", who()),
        None => format!("{} requires a ticket", who()),
    };
    let Some(ticket) = ask.ticket else {
        let message = format!("{}{TICKET_REQUIRED}", required());
        return Err(Denial::new("TicketRequired", message));
    };
    let Some(pattern) = &config.pattern else {
        return Ok(format!("{ticket} is given"));
    };
    match matching(pattern) {
        Ok(whole) if whole.is_match(ticket) => Ok(format!("{ticket} matches {pattern}")),
        Ok(_) => Err(Denial::new(
            "TicketMismatch",
            format!(
                "{}, which {ticket} does not; set spec.ticket to one that does",
                required()
            ),
        )),
        // A pattern with which no change ticket can be compared grants no access.
        Err(why) => Err(Denial::new(
            "TicketMismatch",
            format!(
                "{}, and no ticket can match: the pattern {why}; have the template's owners \
                    correct it",
                required()
            ),
        )),
    }
}

/// Returns the change ticket of a request, with the checks that its template and the access policies require.
#[must_use]
pub fn terms<T: AccessTemplate>(
    ask: Ask<'_>,
    judgement: Option<&Judgement>,
    template: &T,
) -> Option<Ticket> {
    terms_by(ask, judgement, &template.config().ticket)
}

/// Returns the same by the requirements `own` of a template.
#[must_use]
pub fn terms_by<'a>(
    ask: Ask<'_>,
    judgement: Option<&'a Judgement>,
    own: impl IntoIterator<Item = &'a TicketConfig>,
) -> Option<Ticket> {
    Some(Ticket {
        name: ask.ticket?.to_owned(),
        checks: match ask.emergency {
            true => Vec::new(),
            false => checks_by(judgement, own),
        },
        unanswered: Vec::new(),
    })
}

/// Adds the checks of a change ticket to the audit record of a grant.
#[must_use]
pub fn detailed(record: Record, ticket: &Ticket) -> Record {
    let lists = [
        ("ticketChecks", &ticket.checks),
        ("ticketCheckUnavailable", &ticket.unanswered),
    ];
    let lists = lists.into_iter().filter(|(_, checks)| !checks.is_empty());
    lists.fold(record, |record, (name, checks)| {
        record.detail(name, checks.join(", "))
    })
}

/// Returns the checks that a template and the access policies name, each once.
#[must_use]
pub fn checks<T: AccessTemplate>(judgement: Option<&Judgement>, template: &T) -> Vec<String> {
    checks_by(judgement, &template.config().ticket)
}

/// Returns the same by the requirements `own` of a template.
#[must_use]
pub fn checks_by<'a>(
    judgement: Option<&'a Judgement>,
    own: impl IntoIterator<Item = &'a TicketConfig>,
) -> Vec<String> {
    let added = judgement.into_iter();
    let added = added.flat_map(|judgement| &judgement.tickets);
    let added = added.map(|rule| &rule.ticket);
    let mut checks = Vec::new();
    for config in own.into_iter().chain(added) {
        match &config.check {
            Some(check) if !checks.contains(check) => checks.push(check.clone()),
            _ => {}
        }
    }
    checks
}
