//! The metrics of every process. Labels are names of kinds, never a name that a user chose.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
#[cfg(feature = "metrics")]
use prometheus_client::encoding::EncodeLabelSet;

use crate::telemetry::metrics::counter::Counter;
use crate::telemetry::metrics::family::Family;
use crate::telemetry::metrics::gauge::Gauge;
use crate::telemetry::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "metrics", derive(EncodeLabelSet))]
struct Kind {
    kind: String,
}

/// The metrics of the runtime; clones share their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    undecodable: Family<Kind, Gauge>,
    /// The number of stores per kind.
    stores: Arc<Mutex<HashMap<String, usize>>>,
    leader: Gauge,
    skew: Gauge<f64, AtomicU64>,
    events_dropped: Counter,
}

impl Metrics {
    /// Creates the metrics and adds them to a registry, which adds the name of the product as a prefix.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "undecodable_objects",
            "Objects that do not decode and are left out",
            metrics.undecodable.clone(),
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

    /// Returns the metrics of the objects of a kind in one more store.
    pub(crate) fn of_kind(&self, kind: &str) -> OfKind {
        let mut stores = self.stores.lock();
        *stores.entry(kind.to_owned()).or_default() += 1;
        OfKind {
            metrics: self.clone(),
            kind: kind.to_owned(),
            undecodable: AtomicI64::new(0),
        }
    }

    /// Adds the metric of the leader, for processes with an election.
    pub(crate) fn register_leader(&self, registry: &mut Registry) {
        registry.register(
            "leader",
            "1 while this process may write",
            self.leader.clone(),
        );
    }

    /// Records whether this process may write.
    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn skewed(&self, seconds: f64) {
        self.skew.set(seconds);
    }

    pub(crate) fn event_dropped(&self) {
        self.events_dropped.inc();
    }
}

/// The metrics of the objects of a kind in one store. The series of a kind is removed with the last
/// of its stores.
#[derive(Debug)]
pub(crate) struct OfKind {
    metrics: Metrics,
    kind: String,
    undecodable: AtomicI64,
}

impl OfKind {
    /// Records the number of objects that do not decode.
    pub(crate) fn set(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let change = count - self.undecodable.swap(count, Ordering::AcqRel);
        let gauge = self.metrics.undecodable.get_or_create(&self.series());
        gauge.inc_by(change);
    }

    fn series(&self) -> Kind {
        let kind = self.kind.clone();
        Kind { kind }
    }
}

impl Drop for OfKind {
    fn drop(&mut self) {
        let stores = &self.metrics.stores;
        let mut stores = stores.lock();
        let left = stores.get_mut(&self.kind);
        let is_last = left.is_none_or(|left| {
            *left -= 1;
            *left == 0
        });
        if is_last {
            stores.remove(&self.kind);
            self.metrics.undecodable.remove(&self.series());
        } else if *self.undecodable.get_mut() != 0 {
            self.set(0);
        }
    }
}

#[cfg(test)]
#[cfg(feature = "metrics")]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn metric_of_kind_is_removed_with_its_last_store() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let line = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with("undecodable_objects{"));
            line.map(ToOwned::to_owned)
        };
        let (first, second) = (metrics.of_kind("Pod"), metrics.of_kind("Pod"));
        assert_eq!(line(), None);
        first.set(3);
        second.set(1);
        let shows = |count| Some(format!(r#"undecodable_objects{{kind="Pod"}} {count}"#));
        assert_eq!(line(), shows(4));
        drop(first);
        assert_eq!(line(), shows(1));
        drop(second);
        assert_eq!(line(), None);
    }
}
