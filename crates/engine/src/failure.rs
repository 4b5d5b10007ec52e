//! What an error of the API means for a retry: the one place where a [`kube::Error`] becomes a
//! [`Failure`] with its class and its static reason.

use oz_core::controller::Failure;

use crate::raw::without_content;

/// The failure that an error of the API client amounts to. `what` says what was being done, such
/// as `failed to create RoleBinding dev/alice-1234`.
#[must_use]
pub fn failure(what: &str, error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else {
        return match error {
            // What it says quotes the answer.
            kube::Error::SerdeError(error) => Failure::transient(
                "UnexpectedAnswer",
                format!("{what}: {}", without_content(error)),
            ),
            kube::Error::BuildRequest(_) => {
                Failure::transient("UnexpectedAnswer", format!("{what}: {error}"))
            }
            other => Failure::transient("Unreachable", format!("{what}: {}", root_cause(other))),
        };
    };
    let message = format!("{what}: {}", status.message);
    match status.code {
        400 | 413 | 415 | 422 => Failure::invalid("Rejected", message),
        401 => Failure::transient("Unauthorized", message),
        // Missing rights can be given, a quota can be raised: worth another try.
        403 => Failure::transient("Forbidden", message),
        404 => Failure::transient("NotFound", message),
        409 => Failure::transient("Changed", message),
        429 => Failure::transient("ServerBusy", message),
        _ => Failure::transient("ServerError", message),
    }
}

/// A request that was not answered in time.
pub(crate) fn timed_out(what: &str) -> Failure {
    Failure::transient(
        "Timeout",
        format!("{what}: the API server did not answer in time"),
    )
}

/// The innermost error: the outer ones of an HTTP client say little.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use oz_core::controller::FailureClass;

    use super::*;

    #[test]
    fn only_what_the_api_server_rejects_for_its_content_is_not_tried_again() {
        for (code, class, reason) in [
            (400, FailureClass::Invalid, "Rejected"),
            (422, FailureClass::Invalid, "Rejected"),
            (401, FailureClass::Transient, "Unauthorized"),
            (403, FailureClass::Transient, "Forbidden"),
            (404, FailureClass::Transient, "NotFound"),
            (409, FailureClass::Transient, "Changed"),
            (429, FailureClass::Transient, "ServerBusy"),
            (500, FailureClass::Transient, "ServerError"),
            (503, FailureClass::Transient, "ServerError"),
        ] {
            let status = Status::failure("no", "Because").with_code(code);
            let failure = failure("failed to try", &kube::Error::Api(status.boxed()));
            assert_eq!((failure.class, failure.reason), (class, reason), "{code}");
            assert_eq!(failure.message, "failed to try: no");
        }
    }
}
