//! `/metrics`, `/healthz` and `/readyz`, over plain HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::readiness::Readiness;

/// What the probes read.
#[derive(Clone)]
pub(crate) struct Probes {
    pub(crate) registry: Arc<Registry>,
    pub(crate) metrics: Metrics,
    pub(crate) readiness: Readiness,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Probes {
    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(|| async { "ok" }))
            .route("/readyz", get(ready))
            .with_state(self)
    }

    /// Serves on an address that is listened on already, until dropped.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let address = listener.local_addr();
        if let Err(error) = axum::serve(listener, self.router()).await {
            tracing::error!(?address, %error, "the probes are no longer served");
        }
    }
}

/// Takes an address.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

async fn metrics(State(probes): State<Probes>) -> Response {
    probes.metrics.skewed(probes.clock.skew().as_secs_f64());
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &probes.registry) {
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
        return "ok".into_response();
    }
    let text = format!("waiting for: {}", waiting.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}
