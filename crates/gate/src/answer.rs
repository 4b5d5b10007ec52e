//! Responses of the gate itself, in the form that clients of the API server read.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};
use oz_core::connect::Refusal;
use oz_gating::recording::SessionKey;
use serde::Serialize;
use serde_json::{Value, json};

/// The reason for which the gate does not pass on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    /// A reason of a bounded vocabulary.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn new(
        status: StatusCode,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let message = message.into();
        Self {
            status,
            reason,
            message,
        }
    }

    /// Returns the refusal of a request without an identified user.
    pub(crate) fn unknown(why: &str) -> Self {
        let message = format!(
            "the gate serves requests of the API server only ({why}); use the address of the API \
                server"
        );
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", message)
    }

    /// Returns the refusal of a request that the gate cannot serve now.
    pub(crate) fn unavailable(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, reason, message)
    }

    pub(crate) fn response(&self) -> Response<Body> {
        // kubectl chooses its message by these reasons, of which it knows a few.
        let reason = match self.status {
            StatusCode::UNAUTHORIZED => "Unauthorized",
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::NOT_ACCEPTABLE => "NotAcceptable",
            StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            StatusCode::GATEWAY_TIMEOUT => "Timeout",
            _ => "Forbidden",
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "reason": reason, "code": self.status.as_u16(),
            "message": format!("oz: {}", self.message),
            "details": {"causes": [{"reason": self.reason, "message": self.message}]},
        });
        let mut response = document(self.status, &status);
        let again = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        if again.contains(&self.status) {
            let wait = HeaderValue::from_static("1");
            response.headers_mut().insert(RETRY_AFTER, wait);
        }
        response
    }

    /// Returns the response as plain text.
    pub(crate) fn text(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(format!("oz: {}", self.message)));
        *response.status_mut() = self.status;
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, text);
        response
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.reason {
            "QueryTooLong" | "QueryMalformed" | "OptionUnknown" | "OptionRepeated"
            | "OptionMalformed" | "ContainerMalformed" | "UpgradeMalformed" => {
                StatusCode::BAD_REQUEST
            }
            _ => StatusCode::FORBIDDEN,
        };
        Self::new(status, refusal.reason, refusal.message)
    }
}

impl From<Refused> for Refusal {
    /// Returns the refusal for the client of a session that was answered before.
    fn from(refused: Refused) -> Self {
        Self {
            reason: refused.reason,
            message: refused.message,
        }
    }
}

/// Returns a response with a JSON document.
pub(crate) fn document(status: StatusCode, document: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(document.to_string()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// Returns the refusal of an unsupported method.
pub(crate) fn not_allowed() -> Refused {
    let message = "open sessions are read with GET, and terminated with DELETE";
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
}

/// Returns the refusal for a session that is not open.
pub(crate) fn over(key: &SessionKey) -> Refused {
    let message = format!(
        "session {key} is not open; ozctl sessions list --live shows open \
        sessions"
    );
    Refused::new(StatusCode::NOT_FOUND, "NotOpen", message)
}

/// Returns a response with one document.
pub(crate) fn json_response(found: &impl Serialize) -> Result<Response<Body>, Refused> {
    let found = serde_json::to_value(found)
        .map_err(|error| Refused::unavailable("Internal", error.to_string()))?;
    Ok(document(StatusCode::OK, &found))
}
