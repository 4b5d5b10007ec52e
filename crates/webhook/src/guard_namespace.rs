//! The hook that guards the label of enforcing namespaces: whoever could take it off would get in
//! without a grant.

use k8s_openapi::api::core::v1::Namespace;
use oz_admission::{Cx, Notes, Rejection, Review, Validate};
use oz_core::labels;

use crate::permission;

/// Called only when the label is taken off, or given another value.
pub(crate) struct NamespaceGuard;

impl Validate for NamespaceGuard {
    type Object = Namespace;

    async fn validate(&self, cx: &Cx, review: &Review<Namespace>) -> Result<Notes, Rejection> {
        if permission::is_administrator(&cx.client, &review.user).await? {
            return Ok(Notes::none());
        }
        let (user, namespace) = (&review.user.username, review.display_name());
        Err(Rejection::forbidden(
            "EnforcementGuarded",
            format!(
                "{user} may not take the label {} off namespace {namespace}, since that lets people \
                 into its pods without a grant; have a cluster administrator do it",
                labels::ENFORCE
            ),
        ))
    }
}
