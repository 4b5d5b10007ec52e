//! The watched objects that the hooks of all kinds of transient bindings share.

use oz_api::AccessReview;

use super::waiting::WaitingBindings;
use crate::lock::Locks;
use crate::watched::Watched;

/// The watched objects.
#[derive(Clone)]
pub(crate) struct Watches {
    pub(crate) locks: Locks,
    /// The reviews of emergencies.
    pub(crate) reviews: Watched<AccessReview>,
    /// The bindings of all kinds that wait for their windows.
    pub(crate) waiting: WaitingBindings,
}
