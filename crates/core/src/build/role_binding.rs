//! The RoleBinding of a grant: the object that gives access, and the first to be deleted. The request owns
//! it, so that deleting the request ends access even while oz is down. It carries the sealed decision as the
//! Role does: the operator recognizes it as its own even without the Role.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef};
use oz_api::labels;

use crate::access::grant::Grant;
use crate::confine::Owner;

/// Returns the RoleBinding for a grant; `sealed` is the decision as [`Grant::seal`] returned it.
#[must_use]
pub fn role_binding(grant: &Grant, sealed: String) -> RoleBinding {
    let mut binding = bare(grant);
    let annotations = binding.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::GRANT.to_owned(), sealed);
    binding
}

/// Returns the binding without the sealed decision: its subjects and its Role.
pub(crate) fn bare(grant: &Grant) -> RoleBinding {
    RoleBinding {
        metadata: Owner::from_request(&grant.request).owned(grant.object_name()),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: grant.role_name(),
        },
        subjects: Some(grant.bound()),
    }
}
