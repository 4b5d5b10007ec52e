//! The attribution of audit records of reviews: records from callers that are proven to be API
//! servers are written as they are. A record from another caller names that caller as its source,
//! for every hook.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use oz_admission::Caller;
use oz_audit::Sink;
use oz_core::controller::Failure;
use oz_trail::Record;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// The sink for the audit records of hooks, which adds the caller to each record of an unproven
/// caller.
pub(crate) struct Attributed {
    records: Arc<dyn Sink>,
    unproven: Counter,
}

impl Attributed {
    pub(crate) fn new(records: Arc<dyn Sink>) -> Self {
        Self {
            records,
            unproven: Counter::default(),
        }
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "oz_audit_unproven_records",
            "Audit records of reviews from callers that are not known to be API servers",
            self.unproven.clone(),
        );
    }
}

impl Sink for Attributed {
    fn record<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), Failure>> {
        // Outside of a review, the source of a record is unknown.
        let caller = Caller::current();
        if caller.is_some_and(Caller::is_proven) {
            return self.records.record(record);
        }
        let peer = caller.and_then(Caller::address);
        let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
        self.unproven.inc();
        let record = record.clone().of_unproven(&peer);
        async move { self.records.record(&record).await }.boxed()
    }
}

/// Logs that an audit record is not written, except for an unproven caller, which could fill the
/// log.
pub(crate) fn log_unwritten(why: &str, record: &Record) {
    if Caller::current().is_some_and(Caller::is_proven) {
        tracing::error!(why, record = %record.line(), "failed to write an audit record");
    }
}
