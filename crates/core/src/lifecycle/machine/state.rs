//! The state of an object that is granted and ends. Plan and status both follow this one value, so that the
//! end and its reason are derived once in a pass.

use std::ops::Deref;

use jiff::Timestamp;
use oz_api::Phase;

use crate::controller::Failure;
use crate::lifecycle::End;
use crate::lifecycle::window::has_come;

/// An end that applies now. Only the machine creates one, so that one place decides that an object ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueEnd(End);

impl DueEnd {
    pub(crate) fn new(end: End) -> Self {
        Self(end)
    }
}

impl Deref for DueEnd {
    type Target = End;

    fn deref(&self) -> &End {
        &self.0
    }
}

/// The state of an object: `G` is the grant, `O` the possible grant, and `S` a state that only objects of its
/// kind can have.
#[derive(Clone, Debug, PartialEq)]
pub enum State<G, O = G, S = std::convert::Infallible> {
    /// The object has ended, and its status shows that.
    Over,
    /// The object must end now. The grant is `None` if there never was one, or no remaining object contains
    /// it.
    Ending(DueEnd, Option<Box<G>>),
    /// The object is granted; earlier decisions are not repeated.
    Granted(Box<G>),
    /// The object may be granted now.
    Grantable(Box<O>),
    /// The object is refused finally, in this phase.
    Refused(Phase, Failure),
    /// The object cannot be granted yet.
    Waiting(Failure),
    /// A state that only objects of its kind can have.
    Special(S),
}

impl<G, O, S> State<G, O, S> {
    /// Returns the reason why the object waits, if it does.
    pub const fn waits(&self) -> Option<&Failure> {
        match self {
            Self::Waiting(failure) => Some(failure),
            _ => None,
        }
    }
}

/// The reason why an object is not granted, or why its grant does not continue.
#[derive(Clone, Debug)]
pub enum Stop<S, Q> {
    /// The object cannot be granted yet.
    Wait(Failure),
    /// The object is refused finally, in this phase.
    Refuse(Phase, Failure),
    /// The object ends.
    End(End),
    /// A state that only objects of its kind can have.
    Special(S),
    /// This data must be read first.
    Need(Q),
}

/// The reason why nothing is granted.
#[derive(Debug)]
pub enum Otherwise<S, Q> {
    /// The object is in this state instead.
    State(S),
    /// This data must be read first.
    Need(Q),
}

impl<S, Q> From<S> for Otherwise<S, Q> {
    fn from(state: S) -> Self {
        Self::State(state)
    }
}

impl<G, O, S, Q> From<Stop<S, Q>> for Otherwise<State<G, O, S>, Q> {
    fn from(stop: Stop<S, Q>) -> Self {
        Self::State(match stop {
            Stop::Wait(failure) => State::Waiting(failure),
            Stop::Refuse(phase, failure) => State::Refused(phase, failure),
            Stop::End(end) => State::Ending(DueEnd::new(end), None),
            Stop::Special(special) => State::Special(special),
            Stop::Need(question) => return Self::Need(question),
        })
    }
}

/// Returns the end that needs no further data: an end that has begun stays unchanged; otherwise access until
/// `until` is over, or the requesting object was deleted.
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
