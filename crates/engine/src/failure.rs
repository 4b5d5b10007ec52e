//! The effect of an error of the API on retries.

use oz_core::controller::Failure;
use oz_runtime::CallError;

/// Converts an error of the API client into a failure. `what` describes the operation, such as
/// `failed to create RoleBinding dev/alice-1234`.
#[must_use]
pub fn failure(what: &str, error: &kube::Error) -> Failure {
    of_call(CallError::new(what, error))
}

/// Converts the error of a call into a failure: a call that the API server rejects for its content
/// is not retried.
#[must_use]
pub fn of_call(error: CallError) -> Failure {
    if error.rejected {
        Failure::invalid(error.reason, error.message)
    } else {
        Failure::transient(error.reason, error.message)
    }
}
