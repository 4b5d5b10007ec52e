//! The metrics of the spool. Labels have values of this program only.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The reason for which a part was not stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FailureLabels {
    reason: &'static str,
}

/// Handles to the limits of the spool and of each share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    pub(super) spool: Gauge,
    pub(super) share: Gauge,
}

/// Handles to every metric of the spool. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpoolMeters {
    pub(super) bytes: Gauge,
    pub(super) limits: Limits,
    pub(super) shares_full: Gauge,
    pub(super) waiting: Gauge,
    pub(super) stored: Counter,
    pub(super) failures: Family<FailureLabels, Counter>,
    pub(super) different: Counter,
    pub(super) damaged: Counter,
}

impl SpoolMeters {
    /// Registers the metrics in a registry that has the program's prefix.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("recording");
        registry.register(
            "spool_bytes",
            "Bytes of recordings on the gate's disk: of parts that are open, and of those that wait to be stored",
            self.bytes.clone(),
        );
        registry.register(
            "spool_limit_bytes",
            "Maximum bytes of these recordings (gate.recordings.spool.mebibytes)",
            self.limits.spool.clone(),
        );
        registry.register(
            "share_limit_bytes",
            "Bytes of these recordings of one user at which their sessions are slowed down: an \
                eighth",
            self.limits.share.clone(),
        );
        registry.register(
            "shares_full",
            "Users whose recordings use their whole share of the spool, so that their sessions are \
                slowed down",
            self.shares_full.clone(),
        );
        registry.register(
            "parts_waiting",
            "Parts of recordings that wait to be stored",
            self.waiting.clone(),
        );
        registry.register(
            "parts_stored",
            "Parts of recordings that were stored",
            self.stored.clone(),
        );
        registry.register(
            "upload_failures",
            "Failed attempts to store a part, by reason; each is retried. With NotImplemented, the \
                server does not implement a header (gate.recordings.s3.conditionalWrites)",
            self.failures.clone(),
        );
        registry.register(
            "parts_conflicting",
            "Parts that cannot be stored, since another object has their name; they stay on the \
                gate's disk",
            self.different.clone(),
        );
        registry.register(
            "sessions_damaged",
            "Sessions whose files on the gate's disk could not be recovered at the start; they \
                stay there",
            self.damaged.clone(),
        );
    }

    pub(super) fn failed(&self, reason: &'static str) {
        let labels = FailureLabels { reason };
        self.failures.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
impl SpoolMeters {
    pub(super) fn failures_of(&self, reason: &'static str) -> u64 {
        let labels = FailureLabels { reason };
        self.failures.get_or_create(&labels).get()
    }
}
