//! Records of what an unproven caller of the webhook said: nobody knows whether an API server did. They name the caller's
//! address, stand for no fact, and are told apart from others wherever records are counted or verified.

use super::Record;

/// The detail that says what is known of the caller, and its only value.
const CALLER: &str = "caller";
const UNPROVEN: &str = "Unproven";
/// The detail with the caller's address.
const PEER: &str = "peer";

impl Record {
    /// The record, as it is written of an unproven caller with this address.
    #[must_use]
    pub fn of_unproven(self, peer: &str) -> Self {
        self.detail(CALLER, UNPROVEN).detail(PEER, peer)
    }

    /// The address of the unproven caller that this record is of; none if the caller was an API server, or if there was
    /// none.
    #[must_use]
    pub fn unproven_peer(&self) -> Option<&str> {
        if self.details.get(CALLER)? != UNPROVEN {
            return None;
        }
        Some(self.details.get(PEER).map_or("", String::as_str))
    }
}
