//! The requirements of a template for a run that its requester fulfils: the change ticket, and the right to declare an
//! emergency. Admission, the operator and the command line check them here.

use oz_api::Requester;
use oz_api::harness::HarnessRunSpec;
use oz_core::access::decide::{Ask, Denial, Rule, reason_given};
use oz_core::access::emergency;
use oz_core::access::ticket;

use crate::template::Resolved;

/// The field of a template with its emergency settings.
const EMERGENCY: &str = "spec.emergency";

/// Returns the content of a run that these rules and the access policies read.
#[must_use]
pub fn ask(run: &HarnessRunSpec) -> Ask<'_> {
    Ask {
        reason: run.reason.as_deref(),
        container: None,
        ticket: run.ticket.as_deref(),
        emergency: run.is_emergency(),
    }
}

/// Returns the details of audit records about a run: its reason, its emergency and its change ticket.
pub fn details(run: &HarnessRunSpec) -> impl Iterator<Item = (String, String)> {
    let ask = ask(run);
    let reason = ask.reason.map(|reason| ("reason", reason));
    let emergency = ask.emergency.then_some(("emergency", "true"));
    let ticket = ask.ticket.map(|ticket| ("ticket", ticket));
    let details = reason.into_iter().chain(emergency).chain(ticket);
    details.map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// Returns the rules that apply to a run by its template, each with its result regardless of the other rules.
#[must_use]
pub fn rules(requester: &Requester, run: &HarnessRunSpec, template: &Resolved) -> Vec<Rule> {
    let (ask, name) = (ask(run), &run.template_ref.name);
    let mut rules = Vec::new();
    if ask.emergency {
        let declared = (template.emergency.as_ref(), EMERGENCY);
        rules.push(Rule {
            name: "emergency",
            verdict: emergency::may_declare(requester, name, declared),
        });
        rules.push(Rule {
            name: "reason",
            verdict: reason_given(ask.reason, || "an emergency".to_owned()),
        });
    }
    let who = || format!("template {name}");
    rules.extend(template.tickets.iter().map(|config| Rule {
        name: "ticket",
        verdict: ticket::validate(Some(config), who, ask),
    }));
    rules
}

/// Checks whether a run has the change ticket that its template requires, and whether the template lets the requester
/// declare its emergency.
///
/// # Errors
/// The [`Denial`] of the first rule that does not hold, with the next step.
pub fn may(requester: &Requester, run: &HarnessRunSpec, template: &Resolved) -> Result<(), Denial> {
    let mut rules = rules(requester, run, template).into_iter();
    rules.try_for_each(|rule| rule.verdict.map(drop))
}
