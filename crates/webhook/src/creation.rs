//! The rules at the creation of the objects that users request. Each hook reads the facts that the rules ask for, and the
//! rules are applied again.

use std::ops::ControlFlow;

use oz_admission::{Notes, Rejection};
use oz_core::access::rules::{CreationStop, NewObject, at_creation};

use crate::refusal::not_created;

/// The result of the rules: the warnings for the user, or the question that must be answered first.
pub(crate) type Applied<N> = ControlFlow<Notes, <N as NewObject>::Question>;

/// Applies all rules to a new object of this kind, as far as its facts are known.
///
/// # Errors
/// The denial.
pub(crate) fn apply<N: NewObject>(kind: &str, object: &N) -> Result<Applied<N>, Rejection> {
    match at_creation(object) {
        Ok(warnings) => Ok(ControlFlow::Break(
            warnings.into_iter().fold(Notes::none(), Notes::warn),
        )),
        Err(CreationStop::Need(question)) => Ok(ControlFlow::Continue(question)),
        Err(CreationStop::Deny(denial)) => Err(not_created(kind, denial)),
    }
}
