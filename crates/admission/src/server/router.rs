//! The HTTP side of reviews: paths, methods, sizes, times, content types.
//!
//! What can be known from the head of a request is judged before a byte of its body is kept.

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
    reviewer::{Reply, Reviewer},
};

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
        // The path may hold a key that is mistyped, or a previous one: it is not repeated.
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
    peer.iter().for_each(|peer| peer.has_shown_the_key());
    match review(&context, &path, request).await {
        Ok(reply) | Err(reply) => respond(reply),
    }
}

async fn review(context: &Context, path: &str, request: Request) -> Result<Reply, Reply> {
    if request.method() != Method::POST {
        return Err(Reply::text(405, "an AdmissionReview is sent with POST"));
    }
    let metrics = context.reviewer.metrics();
    let body = request.into_body();
    // As the head says; the API server always does.
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
    let _kept = context.reviewer.admit(path, length).await?;
    let body = receive(context, body, length).await?;
    Ok(context.reviewer.review(path, &body).await)
}

async fn receive(context: &Context, mut body: Body, length: usize) -> Result<Vec<u8>, Reply> {
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
    match tokio::time::timeout(context.receive, all).await {
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
            Err(Reply::text(408, "the body took too long to come in"))
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
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content),
    );
    if status == StatusCode::TOO_MANY_REQUESTS {
        // The API server's client waits this long and tries again, within the timeout.
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}
