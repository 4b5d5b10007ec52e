//! The effect of an error of the API on retries.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{IdentityError, Name};
use oz_core::controller::Failure;
use oz_runtime::CallError;

/// Converts an error of the API client into a failure. `what` describes the operation, such as
/// `failed to create RoleBinding dev/alice-1234`.
#[must_use]
pub fn failure(what: &str, error: &kube::Error) -> Failure {
    of_call(CallError::new(what, error))
}

/// Converts the absence of a name or a UID into a failure, which no retry resolves.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unidentified(error: IdentityError) -> Failure {
    Failure::invalid("Unidentified", error.to_string())
}

/// Returns the name of a watched object.
///
/// # Errors
/// The failure of the pass, if it has none.
pub fn name(metadata: &ObjectMeta) -> Result<&str, Failure> {
    let name = Name::from_metadata(metadata).map_err(unidentified)?;
    Ok(name.as_str())
}

/// Returns the UID of a watched object.
///
/// # Errors
/// The failure of the pass, if it has none.
pub fn uid(metadata: &ObjectMeta) -> Result<&str, Failure> {
    part(metadata, metadata.uid.as_deref(), "metadata.uid")
}

/// Returns the namespace of a watched object of a namespaced kind.
///
/// # Errors
/// The failure of the pass, if it has none.
pub fn namespace(metadata: &ObjectMeta) -> Result<&str, Failure> {
    let namespace = metadata.namespace.as_deref();
    part(metadata, namespace, "metadata.namespace")
}

fn part<'a>(
    metadata: &ObjectMeta,
    part: Option<&'a str>,
    field: &'static str,
) -> Result<&'a str, Failure> {
    let Some(part) = part else {
        let name = name(metadata)?.to_owned();
        return Err(unidentified(IdentityError::Missing { name, field }));
    };
    Ok(part)
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
