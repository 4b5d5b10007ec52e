//! Responses: codes for programs, and sentences for users.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use oz_api::harness::wire;
use oz_runs::caller::{Reason, Refusal};
use oz_runtime::CallError;
use serde::Serialize;

/// The refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    /// One of a bounded set of codes.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The time after which a retry may succeed.
    pub(crate) retry_after: Option<Duration>,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            retry_after: None,
        }
    }

    /// Sets the time after which the caller may retry.
    pub(crate) fn later(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Creates the refusal of a caller that exceeds its rate.
    pub(crate) fn too_often(what: &str, wait: Duration) -> Self {
        let message = format!("{what}: wait as long as Retry-After says, and try again");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).later(wait)
    }

    /// Creates the refusal of a request for which there is no capacity.
    pub(crate) fn busy(what: &str) -> Self {
        let message = format!("{what}: try again in a moment");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Busy", message).later(Duration::from_secs(1))
    }

    /// Creates the refusal for a failed call to the API server.
    pub(crate) fn unavailable(error: &CallError) -> Self {
        let message = format!("{error}; try again in a moment");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ApiServer", message)
            .later(Duration::from_secs(1))
    }

    pub(crate) fn response(&self) -> Response<Body> {
        let refused = wire::Refused {
            code: self.code.to_owned(),
            message: self.message.clone(),
        };
        let mut response = json(self.status, &refused);
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            // In whole seconds, rounded up.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.reason {
            Reason::Unauthenticated => StatusCode::UNAUTHORIZED,
            _ => StatusCode::FORBIDDEN,
        };
        Self::new(status, refusal.reason.into(), refusal.message)
    }
}

/// Returns a response with a body as JSON.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    // Texts always serialise.
    let text = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let content = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, content);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_rounded_up_to_whole_seconds() {
        for (wait, said) in [(1, "1"), (1_000, "1"), (1_001, "2"), (0, "1")] {
            let refused = Refused::too_often("too often", Duration::from_millis(wait));
            assert_eq!(refused.response().headers()[RETRY_AFTER], said, "{wait}");
        }
    }

    #[test]
    fn a_token_that_is_not_accepted_may_be_read_again_and_a_run_that_is_over_stays_so() {
        let refused = |reason| Refused::from(Refusal::new(reason, "no"));
        let unknown = refused(Reason::Unauthenticated);
        assert_eq!(
            (unknown.status.as_u16(), unknown.code),
            (401, "Unauthenticated")
        );
        let over = refused(Reason::RunEnded);
        assert_eq!((over.status.as_u16(), over.code), (403, "RunEnded"));
        assert_eq!(over.retry_after, None);
    }
}
