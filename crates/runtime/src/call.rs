//! Calls of the API server with a timeout, and the one place where a [`kube::Error`] becomes an
//! error with a static reason.

use crate::client::REQUEST_TIMEOUT;
use crate::raw::without_content;

/// The failure of a call of the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The reason, as one word of a bounded vocabulary.
    pub reason: &'static str,
    /// True if the API server rejects the content: the same call fails again.
    pub rejected: bool,
    /// The operation and its failure, as a message for users.
    pub message: String,
}

impl CallError {
    /// Converts an error of the API client. `what` describes the operation, such as `failed to
    /// create RoleBinding dev/alice-1234`.
    #[must_use]
    pub fn new(what: &str, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return match error {
                // The text of this error quotes the response.
                kube::Error::SerdeError(error) => Self::passing(
                    "UnexpectedResponse",
                    format!("{what}: {}", without_content(error)),
                ),
                kube::Error::BuildRequest(_) => {
                    Self::passing("UnexpectedResponse", format!("{what}: {error}"))
                }
                other => Self::passing("Unreachable", format!("{what}: {}", root_cause(other))),
            };
        };
        let reason = match status.code {
            400 | 413 | 415 | 422 => "Rejected",
            401 => "Unauthorized",
            // Rights can be granted and a quota can be raised: another attempt may succeed.
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Changed",
            429 => "ServerBusy",
            _ => "ServerError",
        };
        Self {
            reason,
            rejected: reason == "Rejected",
            message: format!("{what}: {}", status.message),
        }
    }

    /// Creates an error for a failure that may be temporary.
    pub(crate) fn passing(reason: &'static str, message: String) -> Self {
        Self {
            reason,
            rejected: false,
            message,
        }
    }
}

/// Bounds the duration of a call and describes the operation if it fails.
///
/// # Errors
/// When the call fails, or has no response within the timeout.
pub async fn within<T>(
    call: impl Future<Output = kube::Result<T>>,
    what: impl Fn() -> String,
) -> Result<T, CallError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(CallError::new(&what(), &error)),
        Err(_) => Err(CallError::passing(
            "Timeout",
            format!("{}: the API server did not respond in time", what()),
        )),
    }
}

/// Returns the innermost error: the outer errors of an HTTP client contain little information.
#[must_use]
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_what_the_api_server_rejects_for_its_content_is_not_tried_again() {
        for (code, rejected, reason) in [
            (400, true, "Rejected"),
            (422, true, "Rejected"),
            (401, false, "Unauthorized"),
            (403, false, "Forbidden"),
            (404, false, "NotFound"),
            (409, false, "Changed"),
            (429, false, "ServerBusy"),
            (500, false, "ServerError"),
            (503, false, "ServerError"),
        ] {
            let status = Status::failure("no", "Because").with_code(code);
            let error = CallError::new("failed to try", &kube::Error::Api(status.boxed()));
            assert_eq!((error.rejected, error.reason), (rejected, reason), "{code}");
            assert_eq!(error.message, "failed to try: no");
        }
    }
}
