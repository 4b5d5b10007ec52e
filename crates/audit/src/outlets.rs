//! The outlets of audit records. Each outlet receives every record, in the order of the chain, and writes at its own
//! pace.

use std::sync::Arc;

use oz_trail::Entry;

/// A destination of audit records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outlet {
    /// Lines on standard output or in a file.
    Log,
    /// AuditEvents.
    Objects,
    /// A server that accepts CloudEvents.
    Collector,
}

/// A new entry that the outlets must write.
pub(crate) struct Written {
    pub(crate) entry: Entry,
    pub(crate) line: Arc<str>,
}

/// The receiving side of an outlet; it does not block.
pub(crate) trait Intake: Send + Sync {
    /// Receives a record, and returns the number of other records that were dropped for it.
    fn record(&self, written: &Written) -> u64;

    /// Receives a checkpoint, if the outlet writes checkpoints.
    fn checkpoint(&self, _line: &str) {}

    /// Returns the number of waiting records that would be lost if the process ended.
    fn undelivered(&self) -> usize {
        0
    }
}
