//! The hook that denies other bindings to the Roles of grants. Kubernetes checks the rights that a
//! binding hands out when the binding is written. A binding to an empty Role hands out nothing;
//! after the deletion of that Role, it would wait for the Role with the same name that oz creates,
//! and its subjects would get access together with the requester.

use k8s_openapi::api::rbac::v1::RoleBinding;
use oz_admission::{Cx, Notes, Rejection, Review, Validate};
use oz_api::names;

/// The hook for names that are reserved for Roles of grants only.
pub(crate) struct RoleBindingGuard;

impl Validate for RoleBindingGuard {
    type Object = RoleBinding;

    async fn validate(&self, _cx: &Cx, review: &Review<RoleBinding>) -> Result<Notes, Rejection> {
        let role = review.object.as_ref().map(|binding| &binding.role_ref.name);
        match role.filter(|role| names::is_grant_role(role)) {
            None => Ok(Notes::none()),
            Some(role) => Err(Rejection::forbidden(
                "GrantRoleReserved",
                format!(
                    "the name {role} is reserved for Roles that oz creates for grants; name \
                     another Role, or have the subjects request access themselves"
                ),
            )),
        }
    }
}
