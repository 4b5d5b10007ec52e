//! The modes of a composite.

use serde::{Deserialize, Serialize};

/// The mode in which a composite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Functions are called.
    Run,
    /// Functions are called, and no child is deleted because of their responses.
    Guard,
    /// Functions are called, and nothing is written. Children expire at their expiry.
    DryRun,
    /// Children expire at their expiry; nothing else is done.
    Ends,
    /// Children with an expiry are deleted now, and parents are released.
    Leave,
}

impl Mode {
    /// Checks whether functions are called.
    #[must_use]
    pub fn asks(self) -> bool {
        matches!(self, Self::Run | Self::Guard | Self::DryRun)
    }
}
