//! What is counted. Labels come from bounded vocabularies: names of controllers and kinds, static
//! reasons; never a name that a user chose.

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
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn metrics_have_the_promised_names_and_bounded_labels() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let failure = Failure::conflict("alice/secret-name is in the way");
        metrics.passed("timebox", Duration::from_millis(3), Some(&failure));
        metrics.passed("timebox", Duration::from_millis(3), None);
        metrics.woke("timebox", Duration::from_millis(2));
        metrics.wrote("timebox", "create", "Role");
        metrics.queued("timebox", 7);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"oz_reconcile_total{controller="timebox",result="Conflict"} 1"#,
            r#"oz_reconcile_total{controller="timebox",result="Ok"} 1"#,
            r#"oz_reconcile_duration_seconds_count{controller="timebox"} 2"#,
            r#"oz_reconcile_failures_total{controller="timebox",class="Conflict",reason="NameConflict"} 1"#,
            r#"oz_wake_lag_seconds_count{controller="timebox"} 1"#,
            r#"oz_writes_total{controller="timebox",verb="create",kind="Role"} 1"#,
            r#"oz_queue_depth{controller="timebox"} 7"#,
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
        assert!(
            !text.contains("alice"),
            "a name that a user chose became a label"
        );
    }
}
