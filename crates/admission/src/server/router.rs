//! The HTTP side of reviews: paths, methods, sizes, times, content types.
//!
//! The router evaluates the head of a request before it stores a byte of the body.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::{Request, State},
    http::{Method, StatusCode, Version, header},
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;

use super::{
    Limits,
    paths::Paths,
    peer::Peer,
    reviewer::{Arrival, Reply, Reviewer},
};
use crate::{caller::Caller, certificate::ClientCertificate};

/// The timeout for the body of an unproven caller: it takes memory for which others wait.
const UNPROVEN_RECEIVE: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Context {
    reviewer: Arc<Reviewer>,
    paths: Paths,
    body_limit: usize,
    receive: Duration,
}

/// Serves every hook under its path.
pub(crate) fn router(reviewer: Arc<Reviewer>, paths: Paths, limits: &Limits) -> Router {
    let context = Context {
        reviewer,
        paths,
        body_limit: limits.body,
        receive: limits.receive,
    };
    Router::new().fallback(answer).with_state(context)
}

async fn answer(State(context): State<Context>, request: Request) -> Response {
    let version = request.version();
    let peer = request.extensions().get::<Arc<Peer>>().cloned();
    let found = context
        .paths
        .open(request.uri().path())
        .filter(|path| context.reviewer.serves(path));
    let Some(path) = found.map(str::to_owned) else {
        if let Some(peer) = &peer {
            peer.has_shown_no_key();
        }
        context.reviewer.metrics().refused("unknown_path");
        // The path may contain a mistyped key, or a previous one: the response does not repeat it.
        let mut response = respond(Reply::text(404, "failed to find a hook at this path"));
        if version <= Version::HTTP_11 {
            let headers = response.headers_mut();
            headers.insert(
                header::CONNECTION,
                header::HeaderValue::from_static("close"),
            );
        }
        return response;
    };
    let caller = context.caller(&request);
    match &peer {
        Some(peer) if context.reviewer.confines(caller) => peer.has_shown_the_key_alone(),
        Some(peer) => peer.has_shown_the_key(),
        None => {}
    }
    let arrival = context.reviewer.arrival(&path);
    match review(&context, (&path, caller, arrival), request).await {
        Ok(reply) | Err(reply) => respond(reply),
    }
}

impl Context {
    fn caller(&self, request: &Request) -> Caller {
        let extensions = request.extensions();
        // A presented certificate is proven: the handshake fails without a certificate of the configured
        // authority.
        let certified = extensions.get::<Arc<ClientCertificate>>().is_some();
        let peer = extensions.get::<Arc<Peer>>();
        peer.map_or(Caller::Local, |peer| {
            self.reviewer.caller(peer.address(), certified)
        })
    }
}

async fn review(
    context: &Context,
    (path, caller, arrival): (&str, Caller, Arrival),
    request: Request,
) -> Result<Reply, Reply> {
    if request.method() != Method::POST {
        return Err(Reply::text(405, "an AdmissionReview is sent with POST"));
    }
    let metrics = context.reviewer.metrics();
    let body = request.into_body();
    // The length is that of the head; the API server always sends it.
    let Some(length) = body.size_hint().exact() else {
        metrics.refused("no_length");
        return Err(Reply::text(
            411,
            "an AdmissionReview is sent with its length",
        ));
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > context.body_limit {
        metrics.refused("too_large");
        let limit = context.body_limit;
        return Err(Reply::text(
            413,
            format!("the body is larger than {limit} bytes"),
        ));
    }
    let reviewer = &context.reviewer;
    let _kept = reviewer.admit(path, length, caller, arrival).await?;
    let most = match reviewer.confines(caller) {
        true => context.receive.min(UNPROVEN_RECEIVE),
        false => context.receive,
    };
    let body = receive(context, body, length, arrival.left(most)).await?;
    if arrival.left(Duration::MAX).is_zero() {
        return Err(Reply::too_late());
    }
    Ok(reviewer.review(path, &body, caller, arrival).await)
}

async fn receive(
    context: &Context,
    mut body: Body,
    length: usize,
    limit: Duration,
) -> Result<Vec<u8>, Reply> {
    let metrics = context.reviewer.metrics();
    let mut whole = Vec::with_capacity(length);
    let all = async {
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                whole.extend_from_slice(&data);
            }
        }
        Ok::<(), axum::Error>(())
    };
    match tokio::time::timeout(limit, all).await {
        Ok(Ok(())) => Ok(whole),
        Ok(Err(error)) => {
            metrics.refused("broken_body");
            Err(Reply::text(
                400,
                format!("failed to receive the body: {error}"),
            ))
        }
        Err(_elapsed) => {
            metrics.refused("slow_body");
            Err(Reply::text(408, "the body did not arrive in time"))
        }
    }
}

fn respond(reply: Reply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content = if reply.status == 200 {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    let mut response = (status, reply.body).into_response();
    // The response omits `Retry-After`: the API server's client would retry until its timeout, and then
    // show its user the URL. A review waits here for room instead.
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content),
    );
    response
}
