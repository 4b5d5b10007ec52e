//! Where records go. Each outlet takes every record, in the order of the chain, and writes at its own
//! pace.

use std::sync::Arc;

use oz_trail::Entry;

/// An outlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outlet {
    /// Lines on standard output or in a file.
    Log,
    /// AuditEvents.
    Objects,
    /// A server that takes CloudEvents.
    Collector,
}

/// A new entry, to be written.
pub(crate) struct Written {
    pub(crate) entry: Entry,
    pub(crate) line: Arc<str>,
}

/// What takes records in for an outlet, at once.
pub(crate) trait Intake: Send + Sync {
    /// Takes a record, and says how many others had to go for it.
    fn record(&self, written: &Written) -> u64;

    /// Takes a checkpoint, where those are written too.
    fn checkpoint(&self, _line: &str) {}

    /// How many wait that the end of the process would lose.
    fn undelivered(&self) -> usize {
        0
    }
}
