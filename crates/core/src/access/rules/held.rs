//! A grant, as the rules read it while it lasts.

use jiff::Timestamp;
use oz_api::Requester;

use crate::access::lock::{Access, Locks};
use crate::access::on_call::OnCall;
use crate::access::request::Spec;
use crate::access::ticket::Ticket;
use crate::tickets::Tickets;

/// A sealed grant. The methods with a default are of rules that not every kind has.
pub trait Held {
    /// Returns the access that locks are compared with.
    fn access(&self) -> Access<'_>;

    /// Returns the digest of the spec of its template, if a change of the template ends the grant.
    fn template_digest(&self) -> Option<&str> {
        None
    }

    /// Returns its change ticket, if it has one.
    fn ticket(&self) -> Option<&Ticket> {
        None
    }

    /// Returns the on-call checks that replaced approvals, with the user who must be on call.
    fn on_call(&self) -> Option<(&Requester, &OnCall)> {
        None
    }
}

/// The facts that the rules read while a grant lasts.
#[derive(Clone, Copy)]
pub struct HeldFacts<'a> {
    /// The instant of the decision.
    pub now: Timestamp,
    /// All locks.
    pub locks: &'a Locks,
    /// The template of the grant, if it is known and exists.
    pub template: Option<&'a dyn Spec>,
    /// The responses of the servers of ticket checks and on-call checks.
    pub tickets: &'a Tickets,
}
