//! The effect of a judgement on an object that the content of a template does not change, such as a transient binding or a
//! harness run: the stamp covers the object, and the approvals of a run cover its template.

use oz_api::{OnCallCheck, TicketConfig};

use super::Judgement;
use super::effect::{Stricter, compared, further, permits_ask, rules};
use crate::access::decide::Ask;
use crate::access::ticket;

/// Returns the respect in which `new` is stricter than `sealed`, if it is: then the approved object differs from the one
/// that would be granted. `own` are the requirements of its template for change tickets.
#[must_use]
pub fn stricter_ask(
    sealed: Option<&Judgement>,
    new: Option<&Judgement>,
    ask: Ask<'_>,
    own: &[TicketConfig],
) -> Option<Stricter> {
    let rules = |judgement: Option<&Judgement>, _: &[OnCallCheck]| rules(judgement);
    let cases = [Vec::new()];
    let known = ticket::checks_by(sealed, own);
    let check = further(&known, ticket::checks_by(new, own)).filter(|_| !ask.emergency);
    compared(sealed, new, permits_ask(new, ask), (rules, &cases), check)
}
