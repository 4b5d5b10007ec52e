//! The responses to the API server for a denied connection.

use oz_admission::{Rejection, Review};
use oz_core::connect::Refusal;
use serde_json::Value;

/// Returns the denial of a connection that is not allowed.
pub(super) fn refused(refusal: Refusal) -> Rejection {
    Rejection::forbidden(refusal.reason, format!("oz: {}", refusal.message))
}

/// Returns the denial of an allowed connection that exceeds the quota of the recorder.
pub(super) fn too_many(refusal: Refusal) -> Rejection {
    Rejection::new(429, refusal.reason, format!("oz: {}", refusal.message))
}

/// Returns the error for a call that is no connection: the registration of the hook was changed.
pub(super) fn not_a_connection(review: &Review<Value>) -> Rejection {
    Rejection::bad_request(
        "UnexpectedResource",
        format!(
            "this hook serves connections to pods and changes in them, not {} {}/{}; its \
             registration was changed, and oz-webhook repairs it when it runs",
            review.operation,
            review.resource.resource,
            review.subresource.as_deref().unwrap_or_default()
        ),
    )
}

/// Returns the error for options that cannot be decoded.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn odd_options(error: serde_json::Error) -> Rejection {
    Rejection::bad_request(
        "OptionsMalformed",
        format!("failed to read the options of the connection: {error}"),
    )
}

/// Returns the denial of a connection without an audit record.
pub(super) fn not_on_record(why: &str) -> Rejection {
    Rejection::new(
        503,
        "RecordFailed",
        format!("oz: failed to write the audit record of the session ({why}); try again"),
    )
}
