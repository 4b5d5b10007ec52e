//! The metrics of the engine. Labels have bounded vocabularies: names of controllers and kinds,
//! static reasons; never a name that a user chose.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use oz_core::controller::Failure;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pass {
    controller: Arc<str>,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailedPass {
    controller: Arc<str>,
    class: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Change {
    controller: Arc<str>,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    controller: Arc<str>,
    verb: &'static str,
    kind: String,
}

/// The metrics of the engine; clones share their values.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    passes: Family<Pass, Counter>,
    durations: Family<Controller, Histogram, fn() -> Histogram>,
    failures: Family<FailedPass, Counter>,
    wake_lags: Family<Controller, Histogram, fn() -> Histogram>,
    transition_lags: Family<Change, Histogram, fn() -> Histogram>,
    writes: Family<Write, Counter>,
    depths: Family<Controller, Gauge>,
    /// The state of each label.
    labels: Arc<Mutex<HashMap<Arc<str>, Label>>>,
}

impl Metrics {
    /// Creates the metrics and adds them to a registry.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        // The buckets are from 0.1 ms to 3 s, and from 1 ms to 16 s.
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
            labels: Arc::default(),
        };
        registry.register("oz_reconcile", "Passes, by result", metrics.passes.clone());
        registry.register(
            "oz_reconcile_duration_seconds",
            "Duration of a pass",
            metrics.durations.clone(),
        );
        registry.register(
            "oz_reconcile_failures",
            "Passes that failed, by class and reason",
            metrics.failures.clone(),
        );
        registry.register(
            "oz_wake_lag_seconds",
            "Delay between the due time of a pass and its start",
            metrics.wake_lags.clone(),
        );
        registry.register(
            "oz_transition_lag_seconds",
            "Delay between the due time of a change and the report that it is done",
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

    /// Returns the metrics of the controllers with this label.
    pub(crate) fn counts(&self, label: &str) -> Arc<Counts> {
        let controller: Arc<str> = label.into();
        let mut labels = self.labels.lock();
        let known = labels.entry(Arc::clone(&controller)).or_default();
        known.users += 1;
        Arc::new(Counts {
            metrics: self.clone(),
            controller,
            series: Arc::clone(&known.series),
        })
    }
}

/// The number of [`Counts`] that share a label, and their series.
#[derive(Debug, Default)]
struct Label {
    users: usize,
    series: Arc<Mutex<Series>>,
}

/// The metrics of one controller. The series are removed with the last [`Counts`] of their label.
#[derive(Debug)]
pub(crate) struct Counts {
    metrics: Metrics,
    controller: Arc<str>,
    series: Arc<Mutex<Series>>,
}

/// The existing series, of those with labels that are not known beforehand.
#[derive(Debug, Default)]
struct Series {
    passes: HashSet<Pass>,
    failures: HashSet<FailedPass>,
    transition_lags: HashSet<Change>,
    writes: HashSet<Write>,
}

impl Counts {
    pub(crate) fn passed(&self, duration: Duration, failure: Option<&Failure>) {
        let metrics = &self.metrics;
        let pass = Pass {
            controller: Arc::clone(&self.controller),
            result: failure.map_or("Ok", |failure| failure.class.into()),
        };
        self.note(&metrics.passes, &pass, |series| &mut series.passes);
        metrics.passes.get_or_create(&pass).inc();
        let durations = metrics.durations.get_or_create(&self.label());
        durations.observe(duration.as_secs_f64());
        if let Some(failure) = failure {
            let failed = FailedPass {
                controller: Arc::clone(&self.controller),
                class: failure.class.into(),
                reason: failure.reason,
            };
            self.note(&metrics.failures, &failed, |series| &mut series.failures);
            metrics.failures.get_or_create(&failed).inc();
        }
    }

    pub(crate) fn woke(&self, lag: Duration) {
        let lags = self.metrics.wake_lags.get_or_create(&self.label());
        lags.observe(lag.as_secs_f64());
    }

    pub(crate) fn changed(&self, reason: &'static str, lag: Duration) {
        let change = Change {
            controller: Arc::clone(&self.controller),
            reason,
        };
        let lags = &self.metrics.transition_lags;
        self.note(lags, &change, |series| &mut series.transition_lags);
        lags.get_or_create(&change).observe(lag.as_secs_f64());
    }

    pub(crate) fn wrote(&self, verb: &'static str, kind: &str) {
        let write = Write {
            controller: Arc::clone(&self.controller),
            verb,
            kind: kind.to_owned(),
        };
        let writes = &self.metrics.writes;
        self.note(writes, &write, |series| &mut series.writes);
        writes.get_or_create(&write).inc();
    }

    pub(crate) fn queued(&self, depth: usize) {
        let depths = self.metrics.depths.get_or_create(&self.label());
        depths.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    fn label(&self) -> Controller {
        Controller {
            controller: Arc::clone(&self.controller),
        }
    }

    /// Records a series that is about to exist.
    fn note<L, M, C>(
        &self,
        family: &Family<L, M, C>,
        labels: &L,
        known: impl FnOnce(&mut Series) -> &mut HashSet<L>,
    ) where
        L: Clone + Eq + Hash,
        C: MetricConstructor<M>,
    {
        if family.get(labels).is_none() {
            known(&mut self.series.lock()).insert(labels.clone());
        }
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        let (metrics, label) = (&self.metrics, self.label());
        // Held until all series are removed: the next controller with this label starts with new
        // series.
        let mut labels = metrics.labels.lock();
        if let Some(known) = labels.get_mut(&self.controller) {
            known.users -= 1;
            if known.users > 0 {
                return;
            }
        }
        labels.remove(&self.controller);
        let series = self.series.lock();
        metrics.durations.remove(&label);
        metrics.wake_lags.remove(&label);
        metrics.depths.remove(&label);
        for pass in &series.passes {
            metrics.passes.remove(pass);
        }
        for failure in &series.failures {
            metrics.failures.remove(failure);
        }
        for change in &series.transition_lags {
            metrics.transition_lags.remove(change);
        }
        for write in &series.writes {
            metrics.writes.remove(write);
        }
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
        let counts = metrics.counts("timebox");
        let failure = Failure::conflict("alice/secret-name is in the way");
        counts.passed(Duration::from_millis(3), Some(&failure));
        counts.passed(Duration::from_millis(3), None);
        counts.woke(Duration::from_millis(2));
        counts.wrote("create", "Role");
        counts.queued(7);
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

    #[test]
    fn the_series_of_a_controller_go_with_the_last_who_counts_under_its_label() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let shown = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text.matches("controller=\"box\"").count()
        };
        let (one, other) = (metrics.counts("box"), metrics.counts("box"));
        let failure = Failure::conflict("in the way");
        one.passed(Duration::from_millis(3), Some(&failure));
        one.woke(Duration::from_millis(2));
        one.changed("Opened", Duration::from_millis(2));
        one.wrote("create", "Role");
        one.queued(7);
        metrics.counts("another").queued(1);
        let before = shown();
        assert!(before > 5, "{before}");
        drop(one);
        assert_eq!(shown(), before);
        drop(other);
        assert_eq!(shown(), 0);
        metrics.counts("box").queued(1);
        assert!(metrics.labels.lock().is_empty());
    }
}
