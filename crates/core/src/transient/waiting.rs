//! Windows that wait to open. Each is a right that comes later, by the groups that its requester had when the binding was
//! created. So a window opens within [`Policy::longest_lead`] of the creation, and a user has at most
//! [`Policy::most_waiting`] that wait. The webhook refuses by it; the operator decides, as it sees all bindings in one order.

use jiff::{SignedDuration, Timestamp};
use oz_api::Phase;

use super::kind::StoredBinding;
use super::policy::Policy;
use super::terms::Terms;
use crate::controller::Failure;
use crate::lifecycle::window::{after, has_come};

/// The delay after its creation at which a binding is counted again: a watch may show older bindings of the same second
/// later.
const COUNTED_AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// A binding with a window that has not opened yet. Earlier creations are less.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitingWindow {
    created: Timestamp,
    /// The order of bindings that were created within the same second.
    uid: String,
}

impl StoredBinding<'_> {
    /// Returns the position of the binding among those that wait for their windows; `None` if its window is open or it
    /// has ended.
    #[must_use]
    pub fn waiting(&self, now: Timestamp) -> Option<WaitingWindow> {
        let opens = self.terms.as_ref().ok()?.opens(self.created());
        let is_pending = self
            .status
            .is_none_or(|status| status.phase == Phase::Pending);
        let is_deleted = self.metadata.deletion_timestamp.is_some();
        (is_pending && !is_deleted && !has_come(now, opens)).then(|| WaitingWindow {
            created: self.created(),
            uid: self.uid().to_owned(),
        })
    }

    /// Returns the instant at which the binding is counted again, if it still has to be.
    pub(super) fn counted_again(&self, now: Timestamp) -> Option<Timestamp> {
        let again = after(self.created(), COUNTED_AGAIN);
        (self.waiting(now).is_some() && !has_come(now, again)).then_some(again)
    }
}

impl Policy {
    /// Checks whether the window of an object that was created at `created` opens within the maximum lead.
    ///
    /// # Errors
    /// The maximum, and the next step of the requester.
    pub fn permits_lead(&self, terms: &Terms, created: Timestamp) -> Result<(), Failure> {
        let opens = terms.opens(created);
        let latest = after(created, self.longest_lead);
        if opens <= latest {
            return Ok(());
        }
        let (lead, longest) = (opens.duration_since(created), self.longest_lead);
        let earliest = after(opens, -longest);
        Err(Failure::invalid(
            "WindowTooFar",
            format!(
                "the window opens {lead:#} after the creation of the binding, and {longest:#} are allowed \
                 (transient.maxBindingLead); create it at {earliest} or later"
            ),
        ))
    }

    /// Checks whether another binding of a user may wait for its window, in addition to this number of older ones.
    ///
    /// # Errors
    /// The maximum, and the next step of the requester.
    pub fn permits_waiting(&self, user: &str, older: usize) -> Result<(), Failure> {
        if self.most_waiting == 0 || older < self.most_waiting {
            return Ok(());
        }
        Err(Failure::invalid(
            "TooManyWaiting",
            format!(
                "{older} transient bindings of user {user} wait for their windows to open, and {} are allowed \
                 (transient.maxWaitingBindings); delete some that are not needed, or create this one when its \
                 window opens",
                self.most_waiting
            ),
        ))
    }
}
