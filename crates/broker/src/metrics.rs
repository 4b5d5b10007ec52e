//! Metrics. Label values are constants of this program: no content of a request creates a series.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EgressLabels {
    decision: &'static str,
    reason: &'static str,
}

fn durations() -> Histogram {
    Histogram::new([
        0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0,
    ])
}

/// Handles to every metric. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    duration: Family<RouteLabels, Histogram, fn() -> Histogram>,
    writes: Family<OutcomeLabels, Counter>,
    reviews: Family<OutcomeLabels, Counter>,
    lends: Family<OutcomeLabels, Counter>,
    held: Gauge,
    egress: Family<EgressLabels, Counter>,
    egress_writes: Family<OutcomeLabels, Counter>,
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(durations as fn() -> Histogram),
            writes: Family::default(),
            reviews: Family::default(),
            lends: Family::default(),
            held: Gauge::default(),
            egress: Family::default(),
            egress_writes: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("oz_broker");
        registry.register(
            "requests",
            "Requests of the pods of runs, by route and by the code of the response",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "Time from request to response",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "report_writes",
            "Writes of reported events into the status of runs",
            metrics.writes.clone(),
        );
        registry.register(
            "token_reviews",
            "Tokens that the API server reviewed",
            metrics.reviews.clone(),
        );
        registry.register(
            "credential_requests",
            "Requests for credentials, by the outcome: Lent, or the code of the denial",
            metrics.lends.clone(),
        );
        registry.register(
            "grant_long_polls",
            "Requests for grants that wait for a change",
            metrics.held.clone(),
        );
        registry.register(
            "egress",
            "Connections that proxies reported, by decision and reason",
            metrics.egress.clone(),
        );
        registry.register(
            "egress_writes",
            "Writes of reported destinations into the status of runs",
            metrics.egress_writes.clone(),
        );
        metrics
    }

    pub(crate) fn answered(&self, route: &'static str, code: &'static str, took: Duration) {
        let labels = RequestLabels { route, code };
        self.requests.get_or_create(&labels).inc();
        let histogram = self.duration.get_or_create(&RouteLabels { route });
        histogram.observe(took.as_secs_f64());
    }

    pub(crate) fn wrote(&self, outcome: &'static str) {
        let labels = OutcomeLabels { outcome };
        self.writes.get_or_create(&labels).inc();
    }

    pub(crate) fn wrote_egress(&self, outcome: &'static str) {
        let labels = OutcomeLabels { outcome };
        self.egress_writes.get_or_create(&labels).inc();
    }

    pub(crate) fn lent(&self, outcome: &'static str) {
        let labels = OutcomeLabels { outcome };
        self.lends.get_or_create(&labels).inc();
    }

    pub(crate) fn held(&self, requests: usize) {
        self.held.set(i64::try_from(requests).unwrap_or(i64::MAX));
    }

    pub(crate) fn egress(&self, decision: &'static str, reason: &'static str, count: u64) {
        let labels = EgressLabels { decision, reason };
        self.egress.get_or_create(&labels).inc_by(count);
    }

    pub(crate) fn reviewed(&self, outcome: &'static str) {
        let labels = OutcomeLabels { outcome };
        self.reviews.get_or_create(&labels).inc();
    }
}
