//! The machine of every object that is granted and ends: it finds the state of one object at one instant. The order is
//! the same for every kind: the object is over; its expiry, a deletion and an end that has begun; lost and changed live
//! objects; the ends of a grant by rules and by its kind; the rules before a grant, and the offer. A kind implements
//! [`Lifecycle`], which says what differs.
//!
//! Time comes first: after its expiry a grant ends, also if other objects are missing, invalid or unreadable.

mod state;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use oz_api::EndReason;

use super::End;
use super::drift::Drift;
use super::window::has_come;

pub use state::{DueEnd, State, Stop};

/// A stored object of a kind that is granted and ends, with its live objects and the facts about it at one instant. The
/// methods with a default are of reasons that not every kind has.
pub trait Lifecycle {
    /// The grant, as it is sealed.
    type Grant;
    /// The possible grant.
    type Offer;
    /// A state that only objects of its kind can have.
    type Special;
    /// The data that a decision may require.
    type Question;

    /// Whether a deletion takes precedence over an end that has begun and over the expiry: of a kind with a finalizer, by
    /// which the object waits for its end.
    const HAS_FINALIZER: bool = false;

    /// Returns the instant of the decision.
    fn now(&self) -> Timestamp;

    /// Checks whether its status reports its end.
    fn is_over(&self) -> bool;

    /// Checks whether it is being deleted.
    fn is_deleted(&self) -> bool;

    /// Returns the end that began in an earlier pass. It stays the one that it was.
    fn begun(&self) -> Option<End>;

    /// Returns its sealed grant.
    fn sealed(&self) -> Sealed<Self::Grant>;

    /// Returns the change of its live objects by other users.
    fn drift(&self, grant: &Self::Grant) -> Option<Drift>;

    /// Checks whether a finding of drift is final.
    ///
    /// # Errors
    /// The state of an object that is only about to be deleted, or the data that must be read first.
    fn confirm_drift(&self) -> Result<(), Stop<Self::Special, Self::Question>> {
        Ok(())
    }

    /// Returns the reasons other than drift to end a grant before its expiry: those of the
    /// [rules](crate::access::rules::while_granted), and those of its kind. Among ends of equal
    /// precedence, the first applies.
    fn early_ends(&self, grant: &Self::Grant) -> Vec<End>;

    /// Checks whether a grant that does not end continues as it is, and completes it.
    ///
    /// # Errors
    /// The state that the object is in instead, or the data that must be read first.
    fn proceed(&self, grant: &mut Self::Grant) -> Result<(), Stop<Self::Special, Self::Question>> {
        let _ = grant;
        Ok(())
    }

    /// Returns the offer for an object without a grant, if all [rules](crate::access::rules::before_grant) hold and its
    /// kind finds one.
    ///
    /// # Errors
    /// The reason why nothing is granted.
    fn propose(&mut self) -> Result<Self::Offer, Stop<Self::Special, Self::Question>>;

    /// Returns the instant at which it stops waiting for a grant.
    fn waits_until(&self) -> Timestamp;

    /// Returns the data that must be read before it is refused finally.
    fn confirm_refusal(&self) -> Option<Self::Question> {
        None
    }
}

/// The grant of an object, as far as its live objects and its status contain it.
#[derive(Clone, Debug)]
pub struct Sealed<G> {
    /// The grant. If it was lost, it serves only to end it.
    pub grant: Option<Box<G>>,
    /// Its expiry. Without the grant, the expiry in the status.
    pub until: Option<Timestamp>,
    /// The reason why the grant is lost, if it is: the object was granted, and no live object proves it.
    pub lost: Option<Lost>,
}

/// A grant that no live object proves.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The change of the live objects.
    pub drift: Drift,
    /// Whether a live object carries a grant that an earlier release sealed, with a key that is no longer accepted.
    pub is_retired: bool,
}

impl Lost {
    fn end(&self) -> End {
        match self.is_retired {
            true => End::seal_retired(),
            false => End::drift(&self.drift),
        }
    }
}

/// The next question of an assessment, and the instant after which its answer has no effect.
#[derive(Debug)]
pub struct Need<Q> {
    /// The question.
    pub question: Q,
    /// That instant.
    pub until: Timestamp,
}

/// The state of an object.
pub type StateOf<L> =
    State<<L as Lifecycle>::Grant, <L as Lifecycle>::Offer, <L as Lifecycle>::Special>;

/// The state of an object, or the data that must be read first.
pub type Assessed<L> = Result<StateOf<L>, Need<<L as Lifecycle>::Question>>;

/// Finds the state of an object.
///
/// # Errors
/// The data that must be read first.
pub fn assess<L: Lifecycle>(object: &mut L) -> Assessed<L> {
    if object.is_over() {
        return Ok(State::Over);
    }
    let Sealed { grant, until, lost } = object.sealed();
    if let Some(end) = due(object, until) {
        return Ok(State::Ending(DueEnd::new(end), grant));
    }
    let until = until.unwrap_or(Timestamp::MAX);
    match (lost, grant) {
        (Some(lost), grant) => early(object, lost.end(), grant, until),
        (None, Some(grant)) => granted(object, grant, until),
        (None, None) => without_grant(object),
    }
}

/// Returns the end that needs no further data.
fn due<L: Lifecycle>(object: &L, until: Option<Timestamp>) -> Option<End> {
    let has_expired = until.is_some_and(|until| has_come(object.now(), until));
    let expired = has_expired.then_some(End::EXPIRED);
    let deleted = object.is_deleted().then_some(End::DELETED);
    match L::HAS_FINALIZER {
        true => deleted.or_else(|| object.begun()).or(expired),
        false => object.begun().or(expired).or(deleted),
    }
}

/// Returns the state of a grant before its expiry.
fn granted<L: Lifecycle>(object: &L, mut grant: Box<L::Grant>, until: Timestamp) -> Assessed<L> {
    let drift = object.drift(&grant).map(End::drift);
    if let Some(end) = first(drift.into_iter().chain(object.early_ends(&grant))) {
        return early(object, end, Some(grant), until);
    }
    match object.proceed(&mut grant) {
        Ok(()) => Ok(State::Granted(grant)),
        Err(stop) => stopped::<L>(stop, Some(grant), until),
    }
}

/// Returns the end that applies, of several at one instant before the expiry.
#[must_use]
pub fn first(ends: impl IntoIterator<Item = End>) -> Option<End> {
    ends.into_iter().min_by_key(|end| precedence(end.reason))
}

/// Returns the precedence of the end of a grant before its expiry: if there are several at one instant, the one with the
/// lowest number applies.
const fn precedence(reason: EndReason) -> u8 {
    match reason {
        EndReason::Expired
        | EndReason::NeverActive
        | EndReason::ApprovalTimedOut
        | EndReason::Deleted => 0,
        // A lock depends on no read of the live objects.
        EndReason::Locked => 1,
        EndReason::JobDeleted => 2,
        // Only an end by drift has an audit record of the drift.
        EndReason::DriftDetected | EndReason::SealRetired => 3,
        EndReason::NotConfined => 4,
        EndReason::PodNotReady => 5,
        EndReason::TicketClosed | EndReason::TicketCheckUnavailable => 6,
        EndReason::OnCallEnded | EndReason::OnCallCheckUnavailable => 7,
        EndReason::PodReplaced => 8,
        EndReason::TemplateChanged => 9,
    }
}

/// Returns the state of an object that ends before its expiry.
fn early<L: Lifecycle>(
    object: &L,
    end: End,
    grant: Option<Box<L::Grant>>,
    until: Timestamp,
) -> Assessed<L> {
    let is_drift = matches!(
        end.reason,
        EndReason::DriftDetected | EndReason::SealRetired
    );
    if is_drift && let Err(stop) = object.confirm_drift() {
        return stopped::<L>(stop, grant, until);
    }
    Ok(State::Ending(DueEnd::new(end), grant))
}

/// Returns the state of an object without a grant.
fn without_grant<L: Lifecycle>(object: &mut L) -> Assessed<L> {
    let until = object.waits_until();
    match object.propose() {
        Ok(offer) => Ok(State::Grantable(Box::new(offer))),
        // Waiting ends as well, whatever was waited for.
        Err(Stop::Wait(_) | Stop::Need(_)) if has_come(object.now(), until) => {
            Ok(State::Ending(DueEnd::new(End::EXPIRED), None))
        }
        Err(Stop::Refuse(phase, failure)) => match object.confirm_refusal() {
            Some(question) => Err(Need {
                question,
                until: Timestamp::MAX,
            }),
            None => Ok(State::Refused(phase, failure)),
        },
        Err(stop) => stopped::<L>(stop, None, until),
    }
}

/// Returns the state that a kind names.
fn stopped<L: Lifecycle>(
    stop: Stop<L::Special, L::Question>,
    grant: Option<Box<L::Grant>>,
    until: Timestamp,
) -> Assessed<L> {
    Ok(match stop {
        Stop::Wait(failure) => State::Waiting(failure),
        Stop::Refuse(phase, failure) => State::Refused(phase, failure),
        Stop::End(end) => State::Ending(DueEnd::new(end), grant),
        Stop::Special(special) => State::Special(special),
        Stop::Need(question) => return Err(Need { question, until }),
    })
}
