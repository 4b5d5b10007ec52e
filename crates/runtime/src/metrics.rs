//! What every process counts, whatever it does. Labels are names of kinds; never a name that a user
//! chose.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: String,
}

/// The runtime's metrics; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    undecodable: Family<Kind, Gauge>,
    leader: Gauge,
    skew: Gauge<f64, AtomicU64>,
    events_dropped: Counter,
}

impl Metrics {
    /// Makes the metrics and adds them to a registry, whose prefix names the product.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "undecodable_objects",
            "Objects that do not decode and are left out",
            metrics.undecodable.clone(),
        );
        registry.register(
            "leader",
            "1 while this process may write",
            metrics.leader.clone(),
        );
        registry.register(
            "clock_skew_seconds",
            "How far the local clock is ahead of the API server's",
            metrics.skew.clone(),
        );
        registry.register(
            "events_dropped",
            "Events that were not published because too many waited",
            metrics.events_dropped.clone(),
        );
        metrics
    }

    /// So many objects of a kind more, or fewer, do not decode.
    pub(crate) fn undecodable(&self, kind: &str, change: i64) {
        let kind = kind.to_owned();
        self.undecodable
            .get_or_create(&Kind { kind })
            .inc_by(change);
    }

    /// Whether this process may write.
    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    pub(crate) fn skewed(&self, seconds: f64) {
        self.skew.set(seconds);
    }

    pub(crate) fn event_dropped(&self) {
        self.events_dropped.inc();
    }
}
