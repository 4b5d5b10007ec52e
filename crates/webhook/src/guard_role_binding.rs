//! The hook that keeps other bindings off the Roles of grants. Kubernetes judges what a binding hands
//! out when it is written. One that names an empty Role hands out nothing, and would wait, the Role
//! deleted, for the one that oz makes: whoever it binds would be let in with the requester.

use k8s_openapi::api::rbac::v1::RoleBinding;
use oz_admission::{Cx, Notes, Rejection, Review, Validate};

use crate::connect::Grants;

/// Called only for names like those of a grant's objects.
pub(crate) struct RoleBindingGuard {
    pub(crate) grants: Grants,
}

impl Validate for RoleBindingGuard {
    type Object = RoleBinding;

    async fn validate(&self, _: &Cx, review: &Review<RoleBinding>) -> Result<Notes, Rejection> {
        let Some(binding) = &review.object else {
            return Ok(Notes::none());
        };
        let role = &binding.role_ref.name;
        let namespace = review.namespace.as_deref().unwrap_or_default();
        match self.grants.request_of(namespace, role) {
            None => Ok(Notes::none()),
            Some(request) => Err(Rejection::forbidden(
                "RoleOfAGrant",
                format!(
                    "Role {role} is oz's, for request {request}, and is for whoever made that request \
                     alone; name another Role, or have them ask for access themselves"
                ),
            )),
        }
    }
}
