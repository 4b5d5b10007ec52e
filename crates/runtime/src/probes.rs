//! `/metrics`, `/healthz` and `/readyz`, over plain HTTP.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
#[cfg(feature = "metrics")]
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
#[cfg(feature = "metrics")]
use parking_lot::Mutex;
use std::sync::Arc;

use crate::clock::{Clock, NOTABLE_SKEW, skew_in_words};
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::store::Ages;
#[cfg(feature = "metrics")]
use crate::telemetry::registry::Registry;

/// The state that the probes read.
#[derive(Clone)]
pub(crate) struct Probes {
    #[cfg(feature = "metrics")]
    pub(crate) registry: Arc<Mutex<Registry>>,
    #[cfg(feature = "metrics")]
    pub(crate) metrics: Metrics,
    pub(crate) readiness: Readiness,
    pub(crate) ages: Ages,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Probes {
    pub(crate) fn router(self) -> Router {
        let router = Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/readyz", get(ready));
        #[cfg(feature = "metrics")]
        let router = router.route("/metrics", get(metrics));
        router.with_state(self)
    }
}

#[cfg(feature = "metrics")]
async fn metrics(State(probes): State<Probes>) -> Response {
    probes.metrics.skewed(probes.clock.skew().as_secs_f64());
    let registry = probes.registry.lock();
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn ready(State(probes): State<Probes>) -> Response {
    let waiting = probes.readiness.waiting_for();
    if waiting.is_empty() {
        let mut text = "ok".to_owned();
        let skew = probes.clock.skew();
        if skew.abs() > NOTABLE_SKEW {
            // A skew does not affect readiness: the API server's clock decides.
            text.push_str(&format!("; the local clock is {}", skew_in_words(skew)));
        }
        let mut degraded = probes.ages.complaints();
        degraded.extend(probes.readiness.degraded());
        if !degraded.is_empty() {
            // This does not affect readiness either: an object that another user stored must not
            // take the process out of service.
            text.push_str(&format!("; degraded: {}", degraded.join("; ")));
        }
        return text.into_response();
    }
    let text = format!("waiting for: {}", waiting.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

#[cfg(test)]
#[cfg(feature = "metrics")]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;
    use crate::clock::SystemClock;
    use crate::store::Health;

    async fn get(probes: &Probes, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = probes.clone().router().oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn probes() -> Probes {
        let mut registry = Registry::default();
        let own = registry.sub_registry_with_prefix("oz");
        let metrics = Metrics::register(own);
        metrics.register_leader(own);
        Probes {
            registry: Arc::new(Mutex::new(registry)),
            metrics,
            readiness: Readiness::default(),
            ages: Ages::default(),
            clock: Arc::new(SystemClock),
        }
    }

    #[tokio::test]
    async fn readiness_names_missing_gates_while_process_is_healthy() {
        let probes = probes();
        let list = probes.readiness.gate("ExecAccessRequest list");
        let crd = probes
            .readiness
            .gate("CRD podaccesstemplates.crds.wizardofoz.co");
        let (status, body) = get(&probes, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            body,
            "waiting for: ExecAccessRequest list, CRD podaccesstemplates.crds.wizardofoz.co"
        );
        assert_eq!(get(&probes, "/healthz").await.0, StatusCode::OK);
        list.open();
        crd.open();
        assert_eq!(get(&probes, "/readyz").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn a_watch_that_fails_makes_the_process_degraded_and_not_absent() {
        let probes = probes();
        let health = Health::new("the watch of Role".to_owned(), "Role");
        probes.ages.add(&health);
        health.heard();
        assert_eq!(get(&probes, "/readyz").await.1, "ok");
        health.failed("no (403)");
        let (status, body) = get(&probes, "/readyz").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(body, "ok; degraded: the watch of Role fails: no (403)");
        health.heard();
        assert_eq!(get(&probes, "/readyz").await.1, "ok");
    }

    #[tokio::test]
    async fn metrics_have_the_promised_names() {
        let probes = probes();
        let boxes = probes.metrics.of_kind("Timebox");
        boxes.set(1);
        probes.metrics.leads(true);
        let (_, text) = get(&probes, "/metrics").await;
        for line in [
            r#"oz_undecodable_objects{kind="Timebox"} 1"#,
            "oz_leader 1",
            "oz_clock_skew_seconds 0",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }
}
