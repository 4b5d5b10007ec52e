//! What an error of the API means for a retry.

use oz_core::controller::Failure;
use oz_runtime::CallError;

/// The failure that an error of the API client amounts to. `what` says what was being done, such
/// as `failed to create RoleBinding dev/alice-1234`.
#[must_use]
pub fn failure(what: &str, error: &kube::Error) -> Failure {
    of_call(CallError::new(what, error))
}

/// The failure that a failed call amounts to: what is rejected for its content is not tried again.
#[must_use]
pub fn of_call(error: CallError) -> Failure {
    if error.rejected {
        Failure::invalid(error.reason, error.message)
    } else {
        Failure::transient(error.reason, error.message)
    }
}
