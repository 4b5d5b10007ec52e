//! The effect of an error of the API on retries.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{Name, Namespace, Uid};
use oz_core::controller::Failure;
use oz_runtime::CallError;

/// Converts an error of the API client into a failure. `what` describes the operation, such as
/// `failed to create RoleBinding dev/alice-1234`.
#[must_use]
pub fn failure(what: &str, error: &kube::Error) -> Failure {
    of_call(CallError::new(what, error))
}

/// Returns the name of a watched object.
///
/// # Errors
/// The failure of the pass, if it has none.
pub fn name(metadata: &ObjectMeta) -> Result<&str, Failure> {
    Ok(Name::from_metadata(metadata)?.as_str())
}

/// Returns the UID of a watched object.
///
/// # Errors
/// The failure of the pass, if it has none.
pub fn uid(metadata: &ObjectMeta) -> Result<&str, Failure> {
    Ok(Uid::from_metadata(metadata)?.as_str())
}

/// Returns the namespace of a watched object of a namespaced kind.
///
/// # Errors
/// The failure of the pass, if it has none.
pub fn namespace(metadata: &ObjectMeta) -> Result<&str, Failure> {
    Ok(Namespace::from_metadata(metadata)?.as_str())
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
