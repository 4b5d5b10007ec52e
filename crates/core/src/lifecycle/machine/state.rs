//! The state of an object that is granted and ends. Plan and status both follow this one value, so that the
//! end and its reason are derived once in a pass.

use std::ops::Deref;

use oz_api::Phase;

use crate::controller::Failure;
use crate::lifecycle::End;

/// An end that applies now. Only the machine creates one, so that one place decides that an object ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueEnd(End);

impl DueEnd {
    pub(super) fn new(end: End) -> Self {
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
