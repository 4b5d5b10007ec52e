//! Requests to the gate.

use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde::Deserialize;
use tower::BoxError;

use crate::cluster::Cluster;
use crate::failure::Failure;

/// The maximum size of a response.
pub(super) const MAX_ANSWER: usize = 64 << 20;

/// The reason why the gate did not answer a request with a success.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The API server denied the request, or did not respond.
    #[error(transparent)]
    Cluster(Failure),
    /// The path is not a path of a request.
    #[error(transparent)]
    Path(http::Error),
    /// The response broke off, or is too long.
    #[error("{0}")]
    Body(BoxError),
    /// The gate refused the request.
    #[error("{}", said(*.status, .message.as_deref()))]
    Refused {
        /// The status of the response.
        status: StatusCode,
        /// The message of the gate, if the response has one.
        message: Option<String>,
    },
}

fn said(status: StatusCode, message: Option<&str>) -> String {
    message.map_or_else(|| status.to_string(), str::to_owned)
}

/// The part of a refusal that is for users.
#[derive(Deserialize)]
struct Refusal {
    message: String,
}

/// Sends a request, and returns the response if its status is a success.
pub(super) async fn send(
    cluster: &Cluster,
    method: Method,
    path: &str,
) -> Result<Response<Body>, GateError> {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.body(Body::empty()).map_err(GateError::Path)?;
    let answer = cluster.answer(cluster.client.send(request)).await;
    let answer = answer.map_err(GateError::Cluster)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let refusal: Option<Refusal> = serde_json::from_slice(&read(answer).await?).ok();
    Err(GateError::Refused {
        status,
        message: refusal.map(|refusal| refusal.message),
    })
}

/// Reads the content of a response.
pub(super) async fn read(answer: Response<Body>) -> Result<Vec<u8>, GateError> {
    let body = Limited::new(answer.into_body(), MAX_ANSWER);
    let collected = body.collect().await.map_err(GateError::Body)?;
    Ok(collected.to_bytes().into())
}
