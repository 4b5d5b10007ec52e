//! The parts of the gate that every stage reports to: the audit trail, the clock and the metrics.

use std::sync::Arc;

use jiff::Timestamp;
use oz_audit::Trail;
use oz_runtime::Clock;

use crate::metrics::Metrics;

/// The journal of the [module](self). Clones share its parts.
#[derive(Clone)]
pub(crate) struct Journal {
    pub(crate) trail: Trail,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
}

impl Journal {
    /// Returns the current time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
