//! The effect of a judgement on a harness run. Unlike that of an access request, it is valid for every content of the
//! template: the stamp covers the run, and the approvals cover the template.

use oz_api::{OnCallCheck, TicketConfig};

use super::Judgement;
use super::effect::{Stricter, compared, not_refused, rules};
use crate::access::decide::{Ask, Denial};
use crate::access::ticket;

/// Checks whether the object may be granted according to the judgement that was sealed when it was created, apart from the
/// template that was judged.
///
/// # Errors
/// The reason why not, and the next step.
pub fn fulfils(judgement: Option<&Judgement>, ask: Ask<'_>) -> Result<(), Denial> {
    not_refused(judgement, ask.reason)?;
    for rule in judgement.iter().flat_map(|judgement| &judgement.tickets) {
        let who = || format!("AccessPolicy {}", rule.policy);
        ticket::validate(Some(&rule.ticket), who, ask)?;
    }
    Ok(())
}

/// Returns the respect in which `new` is stricter than `sealed` for a harness run, if it is; `own` are the requirements of its
/// template for change tickets.
#[must_use]
pub fn stricter_of_run(
    sealed: Option<&Judgement>,
    new: Option<&Judgement>,
    ask: Ask<'_>,
    own: &[TicketConfig],
) -> Option<Stricter> {
    let rules = |judgement: Option<&Judgement>, _: &[OnCallCheck]| rules(judgement);
    let known = ticket::checks_by(sealed, own);
    let mut asked = ticket::checks_by(new, own).into_iter();
    let check = asked.find(|check| !known.contains(check));
    let check = check.filter(|_| !ask.emergency);
    let cases = [Vec::new()];
    let check = check.map(Stricter::TicketCheck);
    compared(sealed, new, fulfils(new, ask), (rules, &cases), check)
}
