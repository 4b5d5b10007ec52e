//! A proposal of a grant, as the rules read it.

use jiff::Timestamp;
use oz_api::Requester;

use crate::access::approval::Approvals;
use crate::access::denial::Denial;
use crate::access::emergency;
use crate::access::fact::Fact;
use crate::access::facts::ReviewLimit;
use crate::access::grant::Approved;
use crate::access::lock::{Access, Locks};
use crate::access::on_call::OnCall;
use crate::access::policy::{self, Judgement};
use crate::access::stamp::{Stamp, StampError};
use crate::access::ticket::Ticket;
use crate::controller::Failure;
use crate::gate::GateAccount;
use crate::lifecycle::Stop;
use crate::tickets::Tickets;

/// The reason why a rule does not hold for a proposal.
pub type StopOf<P> = Stop<<P as Proposal>::Special, <P as Proposal>::Question>;

/// The facts that the rules of every kind read.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The instant of the decision.
    pub now: Timestamp,
    /// The creation of the object.
    pub created: Timestamp,
    /// All locks.
    pub locks: &'a Locks,
    /// The name of another object with the same stamp, if there is one; `None` until that was asked.
    pub same_stamp: Option<&'a Option<String>>,
    /// The other unreviewed emergencies of the requester; `None` until that was asked.
    pub unreviewed: Option<&'a Result<Vec<String>, Failure>>,
}

/// A stored object without a grant. The methods with a default are of rules that not every kind has.
pub trait Proposal {
    /// The questions of its kind.
    type Question;
    /// A state that only objects of its kind can have.
    type Special;

    /// Returns the question whether another object has the same stamp.
    fn ask_same_stamp() -> Self::Question;

    /// Returns the question for the other unreviewed emergencies of a user; `None` if its kind has no emergencies.
    fn ask_reviews(limit: ReviewLimit) -> Option<Self::Question> {
        let _ = limit;
        None
    }

    /// Returns the facts.
    fn known(&self) -> Known<'_>;

    /// Returns the stamp, or the reason why it is not valid.
    ///
    /// # Errors
    /// That reason.
    fn stamp(&self) -> Result<&Stamp, &StampError>;

    /// Returns the access that locks are compared with.
    fn access<'a>(&'a self, requester: &'a Requester) -> Access<'a>;

    /// Checks the spec of the object.
    ///
    /// # Errors
    /// The state of an object with an invalid spec.
    fn spec(&self, facts: &mut Vec<Fact>) -> Result<(), StopOf<Self>>;

    /// Checks whether its template exists; `None` if its kind has no templates.
    ///
    /// # Errors
    /// The state of an object without its template.
    fn template(&self) -> Option<Result<(), StopOf<Self>>> {
        None
    }

    /// Checks whether the template lets this user have the access.
    ///
    /// # Errors
    /// The denial.
    fn permits(&self, requester: &Requester) -> Result<(), Denial> {
        let _ = requester;
        Ok(())
    }

    /// Checks whether the access policies permit it, by their sealed judgement.
    ///
    /// # Errors
    /// The denial.
    fn judged(&self, judgement: Option<&Judgement>) -> Result<(), Denial>;

    /// Returns the gate of its sessions, if they go through one.
    ///
    /// # Errors
    /// The denial if there is no gate.
    fn gate(&self) -> Result<Option<GateAccount>, Denial> {
        Ok(None)
    }

    /// Checks the spec of its template.
    ///
    /// # Errors
    /// The state of an object with an invalid template.
    fn template_terms(&self, facts: &mut Vec<Fact>) -> Result<(), StopOf<Self>> {
        let _ = facts;
        Ok(())
    }

    /// Returns the terms of the declared emergency, if it declares one.
    ///
    /// # Errors
    /// The failure if the terms are invalid.
    fn emergency(&self) -> Result<Option<emergency::Terms>, Failure> {
        Ok(None)
    }

    /// Checks whether this user may have one more object of its kind.
    ///
    /// # Errors
    /// The reason why not.
    fn capacity(&self, requester: &Requester) -> Result<(), StopOf<Self>> {
        let _ = requester;
        Ok(())
    }

    /// Returns its change ticket, with the checks that must accept it, and the responses of the servers; `None` if it names
    /// none.
    fn ticket(&self, judgement: Option<&Judgement>) -> Option<(Ticket, &Tickets)> {
        let _ = judgement;
        None
    }

    /// Checks whether other users must approve it; by default, if access policies require it.
    fn needs_approval(&self, judgement: Option<&Judgement>) -> bool {
        policy::rules(judgement).is_some()
    }

    /// Returns the state of the required approvals; `None` if none are required, or if their rules are invalid.
    fn approvals(&self) -> Option<&Approvals>;

    /// Checks whether its window is open.
    ///
    /// # Errors
    /// The state of an object outside of its window.
    fn window(&self, passed: &mut Passed) -> Result<(), StopOf<Self>> {
        let _ = passed;
        Ok(())
    }
}

/// The results of the rules that hold.
#[derive(Default)]
pub struct Passed {
    /// The conditions, in the order of the rules.
    pub facts: Vec<Fact>,
    /// The gate of the sessions.
    pub gate: Option<GateAccount>,
    /// The terms of the emergency.
    pub emergency: Option<emergency::Terms>,
    /// The change ticket.
    pub ticket: Option<Ticket>,
    /// Whether approvals are required.
    pub needs_approval: bool,
    /// The approvals.
    pub approvals: Vec<Approved>,
    /// The on-call checks that replaced approvals.
    pub on_call: Option<OnCall>,
}
