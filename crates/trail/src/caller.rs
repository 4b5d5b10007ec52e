//! Records of the statements of an unproven caller of the webhook: the caller may or may not be an API server. Such a
//! record contains the address of the caller and proves no event. Flood control and verification separate these records
//! from all others.

use super::Record;

/// The detail that states how far the caller is known, and its only value.
const CALLER: &str = "caller";
const UNPROVEN: &str = "Unproven";
/// The detail with the address of the caller.
const PEER: &str = "peer";

impl Record {
    /// Marks the record as one of an unproven caller with this address.
    #[must_use]
    pub fn of_unproven(self, peer: &str) -> Self {
        self.detail(CALLER, UNPROVEN).detail(PEER, peer)
    }

    /// Returns the address of the unproven caller of this record; none if the caller was an API server, or if there was
    /// no caller.
    #[must_use]
    pub fn unproven_peer(&self) -> Option<&str> {
        if self.details.get(CALLER)? != UNPROVEN {
            return None;
        }
        Some(self.details.get(PEER).map_or("", String::as_str))
    }
}
