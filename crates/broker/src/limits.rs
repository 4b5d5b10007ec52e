//! The limits of requests: rates, and the numbers and sizes of requests in memory.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use oz_api::harness::wire::MAX_BODY;
use oz_runs::caller::{Audience, Caller};
use tokio::sync::Semaphore;

use crate::answer::Refused;
use crate::buckets::Buckets;

/// The number of requests of a pod, and of a run, in a second and at once.
const RATE: (u32, u32) = (5, 10);
/// The same for proxies. A proxy asks for each credential and host once in five minutes, and again when the Secret or the
/// policies change: the burst covers 64 pairs, and the rate covers policies that change ten times a second. Each lend
/// costs one read of a Secret and one audit record, so that a proxy causes at most ten of both in a second.
const PROXY_RATE: (u32, u32) = (10, 64);
/// The maximum number of pods, and of runs, with a separate limit.
const BUCKETS: usize = 8_192;
/// The maximum number of prompts, of bodies and of lends in memory, and the maximum time that a request waits for one of these
/// places.
const PROMPTS: usize = 4;
const BODIES: usize = 32;
const LENDS: usize = 64;
const ROOM_WAIT: Duration = Duration::from_secs(5);
/// The bytes of a refused body that are read before the response.
const MAX_DISCARDED: usize = 4 * MAX_BODY;
/// The maximum time to receive a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The rate limits and the memory limits.
pub(crate) struct Limits {
    reporters: Rates,
    proxies: Rates,
    pub(crate) prompts: Semaphore,
    pub(crate) bodies: Semaphore,
    pub(crate) lends: Semaphore,
}

/// The rate limits of one container of the pods: the requests of one container do not use up those of the other.
pub(crate) struct Rates {
    pub(crate) pods: Buckets<String>,
    pub(crate) runs: Buckets<String>,
}

impl Rates {
    fn new((per_second, burst): (u32, u32)) -> Self {
        Self {
            pods: Buckets::new(per_second, burst, BUCKETS),
            runs: Buckets::new(per_second, burst, BUCKETS),
        }
    }
}

impl Limits {
    /// Returns the rates of the container of a caller.
    pub(crate) fn rates(&self, caller: &Caller) -> &Rates {
        match caller.audience {
            Audience::Reporter => &self.reporters,
            Audience::Proxy => &self.proxies,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reporters: Rates::new(RATE),
            proxies: Rates::new(PROXY_RATE),
            prompts: Semaphore::new(PROMPTS),
            bodies: Semaphore::new(BODIES),
            lends: Semaphore::new(LENDS),
        }
    }
}

/// Waits for one of `places`.
pub(crate) async fn room(places: &Semaphore) -> Result<tokio::sync::SemaphorePermit<'_>, Refused> {
    let room = tokio::time::timeout(ROOM_WAIT, places.acquire()).await;
    match room {
        Ok(Ok(permit)) => Ok(permit),
        _ => Err(Refused::busy("too many requests are in progress")),
    }
}

/// Receives a body of limited size, in limited time.
pub(crate) async fn receive(mut body: Body) -> Result<Bytes, Refused> {
    let too_large = || {
        let message = format!("the body is larger than {MAX_BODY} bytes: report fewer events");
        Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", message)
    };
    // By the length in the header.
    if body.size_hint().lower() > MAX_BODY as u64 {
        discard(body).await;
        return Err(too_large());
    }
    let whole = Limited::new(&mut body, MAX_BODY).collect();
    match tokio::time::timeout(BODY_TIMEOUT, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            discard(body).await;
            Err(too_large())
        }
        Ok(Err(error)) => {
            let message = format!("failed to receive the body: {error}");
            Err(Refused::new(
                StatusCode::BAD_REQUEST,
                "RequestBodyIncomplete",
                message,
            ))
        }
        Err(_elapsed) => {
            let message = "the body did not arrive in time";
            Err(Refused::new(
                StatusCode::REQUEST_TIMEOUT,
                "RequestBodyTimeout",
                message,
            ))
        }
    }
}

/// Reads a refused body and drops it, within limits: a client that is still writing when the connection is closed may never
/// read the response.
async fn discard(body: Body) {
    let mut body = Limited::new(body, MAX_DISCARDED);
    let read = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(BODY_TIMEOUT, read).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_is_bounded_whether_its_length_is_known_or_not() {
        let whole = receive(Body::from(vec![b' '; MAX_BODY])).await;
        assert_eq!(whole.unwrap().len(), MAX_BODY);
        let long = receive(Body::from(vec![b' '; MAX_BODY + 1])).await;
        assert_eq!(long.unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
