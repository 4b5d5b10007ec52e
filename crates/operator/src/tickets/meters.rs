//! The metrics of queries about change tickets, by check.

use std::time::Duration;

use oz_core::tickets::Answer;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCheck {
    check: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResult {
    check: String,
    result: &'static str,
}

pub(super) struct Meters {
    asks: Family<OfResult, Counter>,
    duration: Family<OfCheck, Histogram, fn() -> Histogram>,
    away: Family<OfCheck, Gauge>,
}

/// Returns a histogram up to the longest timeout of a check.
fn durations() -> Histogram {
    Histogram::new([0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0, 30.0])
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            asks: Family::default(),
            duration: Family::new_with_constructor(durations as fn() -> Histogram),
            away: Family::default(),
        }
    }
}

impl Meters {
    pub(super) fn asked(&self, check: &str, answer: &Answer, took: Duration) {
        let result = match answer {
            Answer::Accepted => "accepted",
            Answer::Refused(_) => "refused",
            Answer::Away(_) => "unavailable",
        };
        let check = check.to_owned();
        let of_check = OfCheck {
            check: check.clone(),
        };
        self.asks.get_or_create(&OfResult { check, result }).inc();
        let duration = self.duration.get_or_create(&of_check);
        duration.observe(took.as_secs_f64());
    }

    /// Returns the gauge that shows whether the server of a check did not respond to the last
    /// query.
    pub(super) fn away(&self, check: &str) -> Gauge {
        let check = check.to_owned();
        self.away.get_or_create_owned(&OfCheck { check })
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("oz_ticket_check");
        registry.register(
            "requests",
            "Requests to the servers of ticket checks, by check and result: accepted, refused, \
                unavailable",
            self.asks.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "Response time of the servers of ticket checks, by check",
            self.duration.clone(),
        );
        registry.register(
            "unavailable",
            "Whether the server of a ticket check failed to respond to the last request: 1 or 0",
            self.away.clone(),
        );
    }
}
