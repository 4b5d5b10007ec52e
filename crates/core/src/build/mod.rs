//! The objects of a grant, one file per kind. The builders are infallible: all input was validated and
//! decided before.

mod name_server;
mod network_policy;
mod pod;
mod role;
mod role_binding;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use oz_api::{GROUP, VERSION};
use oz_trail::RequestRef;

pub use name_server::{NameServer, NameServerError};
pub use network_policy::network_policy;
pub use pod::{changeable, content, lowered_deadline, pod};
pub(crate) use role::rules;
pub use role::{handed_out, role};
pub(crate) use role_binding::bare as bare_role_binding;
pub use role_binding::role_binding;

/// Returns the reference by which the garbage collector deletes an object with its request.
/// See <https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents>.
fn owner(request: &RequestRef) -> OwnerReference {
    OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: request.kind.clone(),
        name: request.name.clone(),
        uid: request.uid.clone(),
        controller: Some(true),
        // oz must never block the deletion of a request.
        block_owner_deletion: None,
    }
}
