//! The hook that keeps other bindings off the Roles of grants. Kubernetes judges what a binding hands
//! out when it is written. One that names an empty Role hands out nothing, and would wait, the Role
//! deleted, for the one that oz makes: whoever it binds would be let in with the requester.

use k8s_openapi::api::rbac::v1::RoleBinding;
use oz_admission::{Cx, Notes, Rejection, Review, Validate};
use oz_api::names;

/// Called only for names that are reserved for Roles of grants.
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
                    "the name {role} is reserved for Roles that oz makes for grants; name another Role, or have whoever is \
                     bound ask for access themselves"
                ),
            )),
        }
    }
}
