//! The HTTP side of reviews: methods, sizes, times, content types.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::{
    Limits,
    reviewer::{Reply, Reviewer},
};

#[derive(Clone)]
struct Context {
    reviewer: Arc<Reviewer>,
    body_limit: usize,
    receive: Duration,
}

/// Serves every hook under its path.
pub(crate) fn router(reviewer: Arc<Reviewer>, limits: &Limits) -> Router {
    let context = Context {
        reviewer,
        body_limit: limits.body,
        receive: limits.receive,
    };
    Router::new().fallback(answer).with_state(context)
}

async fn answer(State(context): State<Context>, request: Request) -> Response {
    if request.method() != Method::POST {
        return respond(Reply::text(405, "an AdmissionReview is sent with POST"));
    }
    let path = request.uri().path().to_owned();
    match receive(&context, request.into_body()).await {
        Ok(body) => respond(context.reviewer.review(&path, &body).await),
        Err(reply) => respond(reply),
    }
}

async fn receive(context: &Context, body: Body) -> Result<Bytes, Reply> {
    let whole = Limited::new(body, context.body_limit).collect();
    let metrics = context.reviewer.metrics();
    match tokio::time::timeout(context.receive, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            metrics.refused("too_large");
            Err(Reply::text(
                413,
                format!("the body is larger than {} bytes", context.body_limit),
            ))
        }
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
