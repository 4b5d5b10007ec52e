//! The metrics. Labels have values of this program only: no content of a request creates a series.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::spool::SpoolMeters;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AskedLabels {
    what: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

/// Handles to every metric. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    asked: Family<AskedLabels, Counter>,
    open: Gauge,
    ended: Family<EndLabels, Counter>,
    bytes: Family<DirectionLabels, Counter>,
    /// Sessions that are slowed down.
    pub(crate) slowed: Gauge,
    /// Recorded sessions that carried data of which nothing is recorded.
    pub(crate) nothing_recorded: Counter,
    /// Metrics of recordings that wait to be stored.
    pub(crate) spool: SpoolMeters,
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("oz_gate");
        registry.register(
            "requests",
            "Requests, by operation and by the reason of the denial (OK if there was none)",
            metrics.asked.clone(),
        );
        registry.register(
            "sessions_open",
            "Sessions that are open",
            metrics.open.clone(),
        );
        registry.register(
            "sessions_throttled",
            "Sessions that are paused, since recordings of their users use their whole share of \
                the spool",
            metrics.slowed.clone(),
        );
        registry.register(
            "sessions_ended",
            "Sessions that ended, by what ended them (Closed: either side)",
            metrics.ended.clone(),
        );
        registry.register(
            "session_bytes",
            "Bytes that ended sessions transferred, in from the user and out to the user",
            metrics.bytes.clone(),
        );
        registry.register(
            "sessions_empty_recording",
            "Sessions that required a recording and transferred data, and whose recording is empty",
            metrics.nothing_recorded.clone(),
        );
        metrics.spool.register(registry);
        metrics
    }

    pub(crate) fn answered(&self, what: &'static str, reason: &'static str) {
        let labels = AskedLabels { what, reason };
        self.asked.get_or_create(&labels).inc();
    }

    pub(crate) fn opened(&self) {
        self.open.inc();
    }

    /// Counts a session that is slowed down, until the returned value is dropped.
    pub(crate) fn slowed(&self) -> Slowed {
        self.slowed.inc();
        Slowed(self.slowed.clone())
    }

    pub(crate) fn ended(&self, reason: &'static str, inward: u64, outward: u64) {
        self.open.dec();
        self.ended.get_or_create(&EndLabels { reason }).inc();
        for (direction, count) in [("in", inward), ("out", outward)] {
            let labels = DirectionLabels { direction };
            self.bytes.get_or_create(&labels).inc_by(count);
        }
    }
}

/// A session that is slowed down.
pub(crate) struct Slowed(Gauge);

impl Drop for Slowed {
    fn drop(&mut self) {
        self.0.dec();
    }
}
