//! A plain HTTP server for probes and metrics: small requests, one at a time.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use crate::connection_slots::ConnectionSlots;

/// The limit of connections: there are few probes and scrapers.
const CONNECTIONS: usize = 64;
/// The limit of connections per address: several scrapers may share one, such as that of a proxy.
const PER_PEER: usize = 32;
/// The timeout for reading the head of a request, and for an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a connection, which includes the time in which the client reads the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
/// The maximum size of a head: the smallest value that hyper accepts.
const HEAD_SIZE: usize = 8 << 10;

/// Serves probes and metrics until the future is dropped. Request bodies are not read.
pub async fn serve(listener: TcpListener, router: Router) {
    let slots = ConnectionSlots::new(CONNECTIONS, PER_PEER);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        // Finished connections are removed.
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Probably out of file descriptors: connections that close free some.
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let slot = slots.take(peer.ip());
        let router = router.clone();
        connections.spawn(async move {
            tokio::select! {
                () = connection(stream, router) => {}
                () = slot.evicted() => {}
            }
        });
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let service = service_fn(move |request| answer(router.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(64)
        .max_buf_size(HEAD_SIZE)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection broke"),
        Err(_elapsed) => tracing::debug!("a connection was closed: it was open for too long"),
    }
}

async fn answer(router: Router, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = Response::new(Body::from("only GET is served\n"));
        *refused.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return Ok(refused);
    }
    router.oneshot(request.map(|_| Body::empty())).await
}
