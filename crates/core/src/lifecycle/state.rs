//! Where something stands that is granted and ends. Plan and status both go by this one value, so that
//! what ends, and why, is derived once in a pass.

use jiff::Timestamp;
use oz_api::Phase;

use super::End;
use super::window::has_come;
use crate::controller::Failure;

/// Where something stands: `G` is what was granted, `O` what can be, and `S` what only things of its kind
/// can be in besides.
#[derive(Clone, Debug, PartialEq)]
pub enum State<G, O = G, S = std::convert::Infallible> {
    /// It ended, and its status says so.
    Over,
    /// It must end now. The grant is `None` if there never was one, or nothing is left that knows it.
    Ending(End, Option<Box<G>>),
    /// It was granted; nothing that was decided is decided again.
    Granted(Box<G>),
    /// It may be granted now.
    Grantable(Box<O>),
    /// It is refused for good, in this phase.
    Refused(Phase, Failure),
    /// It cannot be granted yet.
    Waiting(Failure),
    /// What only things of its kind can be in.
    Special(S),
}

/// Why nothing is granted.
#[derive(Debug)]
pub enum Otherwise<S, Q> {
    /// It is in this state instead.
    State(S),
    /// This must be found out first.
    Need(Q),
}

impl<S, Q> From<S> for Otherwise<S, Q> {
    fn from(state: S) -> Self {
        Self::State(state)
    }
}

/// The end that needs no look at anything else: the one that has begun stays the one it was; else what
/// lasts until `until` is over, or the object that asked for it was deleted.
#[must_use]
pub fn due(
    now: Timestamp,
    begun: Option<End>,
    until: Option<Timestamp>,
    deleted: bool,
) -> Option<End> {
    let over = until.is_some_and(|until| has_come(now, until));
    begun
        .or(over.then_some(End::EXPIRED))
        .or(deleted.then_some(End::DELETED))
}
