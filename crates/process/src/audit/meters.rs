//! What the trail counts.

use oz_core::audit::Record;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct What {
    action: &'static str,
    decision: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Where {
    sink: &'static str,
}

#[derive(Clone, Default)]
pub(super) struct Meters {
    records: Family<What, Counter>,
    failures: Family<Where, Counter>,
    /// Somebody needed a record and did not get it.
    pub(super) refused: Counter,
    pub(super) dropped: Counter,
    checkpoints: Counter,
    waiting: Gauge,
    unsigned: Gauge,
}

impl Meters {
    pub(super) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("oz_audit");
        registry.register(
            "records",
            "Audit records taken in, by what happened",
            self.records.clone(),
        );
        registry.register(
            "sink_failures",
            "Failed attempts to write audit records, by where to",
            self.failures.clone(),
        );
        registry.register(
            "refused",
            "What was refused or put off because it could not be put on record in time",
            self.refused.clone(),
        );
        registry.register(
            "dropped",
            "Audit records that the collector never got, because it was away for too long",
            self.dropped.clone(),
        );
        registry.register(
            "checkpoints",
            "Signed checkpoints that were published",
            self.checkpoints.clone(),
        );
        registry.register(
            "waiting",
            "Audit records that are not yet everywhere they must be",
            self.waiting.clone(),
        );
        registry.register(
            "unsigned",
            "Audit records that are everywhere and in no published checkpoint yet",
            self.unsigned.clone(),
        );
    }

    pub(super) fn written(&self, record: &Record) {
        let what = What {
            action: record.action.into(),
            decision: record.decision.into(),
        };
        self.records.get_or_create(&what).inc();
    }

    pub(super) fn failed(&self, sink: &'static str) {
        self.failures.get_or_create(&Where { sink }).inc();
    }

    pub(super) fn signed(&self) {
        self.checkpoints.inc();
    }

    pub(super) fn sizes(&self, waiting: usize, unsigned: u64) {
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.unsigned
            .set(i64::try_from(unsigned).unwrap_or(i64::MAX));
    }
}
