//! `/healthz`, `/readyz` and `/metrics`, on a plain port: probes and scrapers have no
//! business with the webhooks' certificate.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::registry::Registry;

use crate::manager::Degraded;
use crate::readiness::Readiness;

#[derive(Clone)]
struct Context {
    readiness: Readiness,
    registry: Arc<Registry>,
    degraded: Option<Degraded>,
}

pub(crate) fn router(
    readiness: Readiness,
    registry: Arc<Registry>,
    degraded: Option<Degraded>,
) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Context {
            readiness,
            registry,
            degraded,
        })
}

async fn ready(State(context): State<Context>) -> Response {
    let missing = context.readiness.missing();
    if missing.is_empty() {
        let degraded = context.degraded.map(|degraded| degraded());
        return match degraded.filter(|reasons| !reasons.is_empty()) {
            Some(reasons) => format!("ok; degraded: {}", reasons.join("; ")).into_response(),
            None => "ok".into_response(),
        };
    }
    let body = format!("waiting for: {}\n", missing.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

async fn metrics(State(context): State<Context>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &context.registry) {
        Ok(()) => {
            let content = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, content)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
