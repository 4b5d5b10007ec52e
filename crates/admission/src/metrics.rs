//! The metrics of the library, under the prefix `admission_`.
//!
//! Labels are static or derive from declarations; no data of a request can create a time series.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use jiff::Timestamp;
use oz_runtime::telemetry::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
#[cfg(feature = "metrics")]
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};

use crate::{certificate::rotation::Step, review::Operation};

/// The result of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "metrics", derive(EncodeLabelValue))]
pub(crate) enum Verdict {
    /// Allowed without a change.
    Allowed,
    /// Allowed with a change.
    Patched,
    /// Denied by the extension.
    Denied,
    /// Denied because the object does not decode.
    Undecodable,
    /// The extension panicked.
    Panicked,
    /// The extension took too long.
    TimedOut,
    /// The extension could not decide.
    Undecided,
    /// Allowed by a monitoring hook that would otherwise deny the request.
    WouldDeny,
    /// Allowed unchanged by a monitoring hook that would otherwise change the object.
    WouldPatch,
}

/// The result of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "metrics", derive(EncodeLabelValue))]
pub(crate) enum ConversionOutcome {
    /// Every object was converted.
    Converted,
    /// The conversion of an object failed.
    Failed,
    /// The conversion panicked.
    Panicked,
    /// The conversion took too long.
    TimedOut,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "metrics", derive(EncodeLabelSet))]
struct ConversionLabels {
    definition: Arc<str>,
    outcome: ConversionOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "metrics", derive(EncodeLabelSet))]
struct DefinitionLabels {
    definition: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "metrics", derive(EncodeLabelSet))]
struct ReviewLabels {
    hook: Arc<str>,
    operation: &'static str,
    verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "metrics", derive(EncodeLabelSet))]
struct HookLabels {
    hook: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "metrics", derive(EncodeLabelSet))]
struct NameLabels {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "metrics", derive(EncodeLabelSet))]
struct StepLabels {
    step: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "metrics", derive(EncodeLabelSet))]
struct WatcherLabels {
    watcher: Arc<str>,
}

/// Handles to every metric. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    reviews: Family<ReviewLabels, Counter>,
    duration: Family<HookLabels, Histogram, fn() -> Histogram>,
    panics: Family<HookLabels, Counter>,
    conversions: Family<ConversionLabels, Counter>,
    conversion_duration: Family<DefinitionLabels, Histogram, fn() -> Histogram>,
    refused: Family<NameLabels, Counter>,
    repairs: Family<NameLabels, Counter>,
    rotation: Family<StepLabels, Counter>,
    expiry: Family<NameLabels, Gauge<f64, AtomicU64>>,
    upkeep_failures: Family<NameLabels, Counter>,
    upkeep_success: Family<NameLabels, Gauge<f64, AtomicU64>>,
    connections: Gauge,
    known_callers: Gauge,
    watch_events: Family<WatcherLabels, Counter>,
    watch_errors: Family<WatcherLabels, Counter>,
}

/// Returns the seconds since 1970, the unit of Prometheus.
fn seconds(instant: Timestamp) -> f64 {
    instant.as_duration().as_secs_f64()
}

fn durations() -> Histogram {
    Histogram::new([
        0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0,
    ])
}

impl Metrics {
    /// Registers all metrics.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            reviews: Family::default(),
            duration: Family::new_with_constructor(durations as fn() -> Histogram),
            panics: Family::default(),
            conversions: Family::default(),
            conversion_duration: Family::new_with_constructor(durations as fn() -> Histogram),
            refused: Family::default(),
            repairs: Family::default(),
            rotation: Family::default(),
            expiry: Family::default(),
            upkeep_failures: Family::default(),
            upkeep_success: Family::default(),
            connections: Gauge::default(),
            known_callers: Gauge::default(),
            watch_events: Family::default(),
            watch_errors: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("admission");
        registry.register("reviews", "Reviews answered", metrics.reviews.clone());
        registry.register_with_unit(
            "review_duration",
            "Time from request to response",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register("panics", "Panics of extensions", metrics.panics.clone());
        metrics.register_conversions(registry);
        registry.register(
            "refused",
            "Calls refused before review",
            metrics.refused.clone(),
        );
        registry.register(
            "registration_repairs",
            "Webhook configurations that were changed or deleted by others, and repaired",
            metrics.repairs.clone(),
        );
        registry.register(
            "rotation_steps",
            "Changes of the certificate authority",
            metrics.rotation.clone(),
        );
        registry.register_with_unit(
            "certificate_expiry_timestamp",
            "When a certificate ends",
            Unit::Seconds,
            metrics.expiry.clone(),
        );
        registry.register(
            "upkeep_failures",
            "Passes in which a part of the upkeep failed",
            metrics.upkeep_failures.clone(),
        );
        registry.register_with_unit(
            "upkeep_last_success_timestamp",
            "Time at which a part of the upkeep last succeeded",
            Unit::Seconds,
            metrics.upkeep_success.clone(),
        );
        registry.register(
            "connections",
            "Open connections",
            metrics.connections.clone(),
        );
        registry.register(
            "known_callers",
            "Addresses that handlers verified as those of API servers",
            metrics.known_callers.clone(),
        );
        registry.register(
            "watch_events",
            "Events that were delivered to watchers",
            metrics.watch_events.clone(),
        );
        registry.register(
            "watch_errors",
            "Watches that broke",
            metrics.watch_errors.clone(),
        );
        metrics
    }

    fn register_conversions(&self, registry: &mut Registry) {
        registry.register(
            "conversions",
            "Calls to convert objects",
            self.conversions.clone(),
        );
        registry.register_with_unit(
            "conversion_duration",
            "Time from a request to convert objects to its response",
            Unit::Seconds,
            self.conversion_duration.clone(),
        );
    }

    pub(crate) fn reviewed(
        &self,
        hook: &Arc<str>,
        operation: Operation,
        verdict: Verdict,
        took: Duration,
    ) {
        let labels = ReviewLabels {
            hook: hook.clone(),
            operation: operation.as_str(),
            verdict,
        };
        self.reviews.get_or_create(&labels).inc();
        let labels = HookLabels { hook: hook.clone() };
        if verdict == Verdict::Panicked {
            self.panics.get_or_create(&labels).inc();
        }
        self.duration
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    pub(crate) fn converted(
        &self,
        definition: &Arc<str>,
        outcome: ConversionOutcome,
        took: Duration,
    ) {
        let labels = ConversionLabels {
            definition: definition.clone(),
            outcome,
        };
        self.conversions.get_or_create(&labels).inc();
        let definition = definition.clone();
        self.conversion_duration
            .get_or_create(&DefinitionLabels { definition })
            .observe(took.as_secs_f64());
    }

    /// Counts a call that was refused before review: `overload`, `malformed`, `unknown_path`, ….
    pub(crate) fn refused(&self, name: &'static str) {
        self.refused.get_or_create(&NameLabels { name }).inc();
    }

    pub(crate) fn repaired(&self, kind: &'static str) {
        self.repairs.get_or_create(&NameLabels { name: kind }).inc();
    }

    pub(crate) fn callers_known(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.known_callers.set(count);
    }

    pub(crate) fn rotation_step(&self, step: Step) {
        let (step, reason) = match step {
            Step::Wait(_) => return,
            Step::Replace(reason) => ("replace", reason.as_str()),
            Step::Stage(reason) => ("stage", reason.as_str()),
            Step::KeyPaths => ("key_paths", ""),
            Step::Remember => ("remember", ""),
            Step::Promote => ("promote", ""),
            Step::Forget => ("forget", ""),
            Step::StagePaths => ("stage_paths", ""),
            Step::PromotePaths => ("promote_paths", ""),
            Step::ForgetPaths => ("forget_paths", ""),
            Step::Callers => ("callers", ""),
        };
        self.rotation
            .get_or_create(&StepLabels { step, reason })
            .inc();
    }

    /// Sets the expiry of `leaf` or `ca`: an instant, so that the value stays valid while it is not
    /// updated.
    pub(crate) fn expires(&self, name: &'static str, at: Timestamp) {
        self.expiry
            .get_or_create(&NameLabels { name })
            .set(seconds(at));
    }

    /// Records that a part of upkeep completed its due work, or failed.
    pub(crate) fn upkeep(&self, name: &'static str, worked: bool, now: Timestamp) {
        let failures = self.upkeep_failures.get_or_create(&NameLabels { name });
        if worked {
            let success = self.upkeep_success.get_or_create(&NameLabels { name });
            success.set(seconds(now));
        } else {
            failures.inc();
        }
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.inc();
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.dec();
    }

    pub(crate) fn watch_event(&self, watcher: &Arc<str>) {
        self.watch_events
            .get_or_create(&WatcherLabels {
                watcher: watcher.clone(),
            })
            .inc();
    }

    pub(crate) fn watch_error(&self, watcher: &Arc<str>) {
        self.watch_errors
            .get_or_create(&WatcherLabels {
                watcher: watcher.clone(),
            })
            .inc();
    }
}
