//! What the API server is told of a refused connection.

use oz_admission::{Rejection, Review};
use oz_core::connect::Refusal;
use serde_json::Value;

/// A connection that is not allowed.
pub(super) fn refused(refusal: Refusal) -> Rejection {
    Rejection::forbidden(refusal.reason, format!("oz: {}", refusal.message))
}

/// A connection that is allowed, and that the recorder has no room for.
pub(super) fn too_many(refusal: Refusal) -> Rejection {
    Rejection::new(429, refusal.reason, format!("oz: {}", refusal.message))
}

/// The hook was called for something else: its registration was changed.
pub(super) fn not_a_connection(review: &Review<Value>) -> Rejection {
    Rejection::bad_request(
        "NotAConnection",
        format!(
            "this hook is for connections to pods and what is changed in them, not for {} {}/{}; its \
             registration was changed, and oz-webhook repairs it when it runs",
            review.operation,
            review.resource.resource,
            review.subresource.as_deref().unwrap_or_default()
        ),
    )
}

/// Options that are none.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn odd_options(error: serde_json::Error) -> Rejection {
    Rejection::bad_request(
        "OptionsMalformed",
        format!("failed to read the options of the connection: {error}"),
    )
}

/// Nobody gets in unrecorded.
pub(super) fn not_on_record(why: &str) -> Rejection {
    Rejection::new(
        503,
        "RecordFailed",
        format!("oz: the session cannot be put on record ({why}); try again"),
    )
}
