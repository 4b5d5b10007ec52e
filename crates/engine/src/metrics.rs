//! What is counted. Labels come from bounded vocabularies: names of controllers and kinds, static
//! reasons; never a name that a user chose.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use oz_core::controller::Failure;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pass {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailedPass {
    controller: &'static str,
    class: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Change {
    controller: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    controller: &'static str,
    verb: &'static str,
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: String,
}

/// The engine's metrics; clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    passes: Family<Pass, Counter>,
    durations: Family<Controller, Histogram, fn() -> Histogram>,
    failures: Family<FailedPass, Counter>,
    wake_lags: Family<Controller, Histogram, fn() -> Histogram>,
    transition_lags: Family<Change, Histogram, fn() -> Histogram>,
    writes: Family<Write, Counter>,
    depths: Family<Controller, Gauge>,
    undecodable: Family<Kind, Gauge>,
    leader: Gauge,
    skew: Gauge<f64, AtomicU64>,
    events_dropped: Counter,
}

impl Metrics {
    /// Makes the metrics and adds them to a registry.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        // From 0.1 ms to 3 s, and from 1 ms to 16 s.
        let durations: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 16));
        let lags: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 15));
        let metrics = Self {
            passes: Family::default(),
            durations: Family::new_with_constructor(durations),
            failures: Family::default(),
            wake_lags: Family::new_with_constructor(lags),
            transition_lags: Family::new_with_constructor(lags),
            writes: Family::default(),
            depths: Family::default(),
            undecodable: Family::default(),
            leader: Gauge::default(),
            skew: Gauge::default(),
            events_dropped: Counter::default(),
        };
        registry.register(
            "oz_reconcile",
            "Passes, by what came of them",
            metrics.passes.clone(),
        );
        registry.register(
            "oz_reconcile_duration_seconds",
            "How long a pass takes",
            metrics.durations.clone(),
        );
        registry.register(
            "oz_reconcile_failures",
            "Passes that failed, by class and reason",
            metrics.failures.clone(),
        );
        registry.register(
            "oz_wake_lag_seconds",
            "How late a pass that was due began",
            metrics.wake_lags.clone(),
        );
        registry.register(
            "oz_transition_lag_seconds",
            "How long after the instant at which it was due a change was carried out and told",
            metrics.transition_lags.clone(),
        );
        registry.register(
            "oz_writes",
            "Writes to the API server, attempted",
            metrics.writes.clone(),
        );
        registry.register(
            "oz_queue_depth",
            "Objects that wait for their pass",
            metrics.depths.clone(),
        );
        registry.register(
            "oz_undecodable_objects",
            "Objects that do not decode and are left out",
            metrics.undecodable.clone(),
        );
        registry.register(
            "oz_leader",
            "1 while this process may write",
            metrics.leader.clone(),
        );
        registry.register(
            "oz_clock_skew_seconds",
            "How far the local clock is ahead of the API server's",
            metrics.skew.clone(),
        );
        registry.register(
            "oz_events_dropped",
            "Events that were not published because too many waited",
            metrics.events_dropped.clone(),
        );
        metrics
    }

    pub(crate) fn passed(
        &self,
        controller: &'static str,
        duration: Duration,
        failure: Option<&Failure>,
    ) {
        let result = failure.map_or("Ok", |failure| failure.class.into());
        let pass = Pass { controller, result };
        self.passes.get_or_create(&pass).inc();
        self.durations
            .get_or_create(&Controller { controller })
            .observe(duration.as_secs_f64());
        if let Some(failure) = failure {
            let failed = FailedPass {
                controller,
                class: failure.class.into(),
                reason: failure.reason,
            };
            self.failures.get_or_create(&failed).inc();
        }
    }

    pub(crate) fn woke(&self, controller: &'static str, lag: Duration) {
        self.wake_lags
            .get_or_create(&Controller { controller })
            .observe(lag.as_secs_f64());
    }

    pub(crate) fn changed(&self, controller: &'static str, reason: &'static str, lag: Duration) {
        self.transition_lags
            .get_or_create(&Change { controller, reason })
            .observe(lag.as_secs_f64());
    }

    pub(crate) fn wrote(&self, controller: &'static str, verb: &'static str, kind: &str) {
        let kind = kind.to_owned();
        self.writes
            .get_or_create(&Write {
                controller,
                verb,
                kind,
            })
            .inc();
    }

    pub(crate) fn queued(&self, controller: &'static str, depth: usize) {
        self.depths
            .get_or_create(&Controller { controller })
            .set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    pub(crate) fn undecodable(&self, kind: &str, change: i64) {
        let kind = kind.to_owned();
        self.undecodable
            .get_or_create(&Kind { kind })
            .inc_by(change);
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    pub(crate) fn skewed(&self, seconds: f64) {
        self.skew.set(seconds);
    }

    pub(crate) fn event_dropped(&self) {
        self.events_dropped.inc();
    }
}
