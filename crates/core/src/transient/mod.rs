//! Transient bindings: rights that exist only inside their window, `[validFrom, validUntil)`.
//!
//! One plan serves four kinds: the two kinds of oz and the two as they were published. A kind implements [`Kind`] for
//! its differences; [`Terms`] are the validated spec of an object, `assess` finds its state, and [`Transient`] is the
//! [`Controller`](crate::controller::Controller) of all four.

mod assess;
pub mod creation;
mod danger;
mod events;
mod facts;
mod grant;
mod judged;
mod kind;
mod plan;
mod policy;
mod privileged;
mod proposal;
mod report;
mod roles;
mod terms;
mod waiting;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use oz_api::{RBAC_GROUP, Requester, RoleReference};

pub use danger::danger;
pub use facts::{Assessment, Facts, Lookup, Opens, Question, State, Want};
pub use grant::Grant;
pub use judged::limit;
pub(crate) use kind::violations;
pub use kind::{Binding, Kind, StoredBinding, Transient};
pub use oz_api::names::BINDING_FINALIZER as FINALIZER;
pub use policy::{Policy, ROLE_TOO_POWERFUL};
pub use privileged::{Danger, Privileged, has_privileged, privileged};
pub use roles::{BindableRoles, Listed, RolePattern, RolePatternError};
pub(crate) use terms::Spec;
pub use terms::{Closes, Position, Terms};
pub use waiting::WaitingWindow;

/// Creates the review of whether a requester may bind a role; `namespace` is `None` for the whole cluster. The right is
/// the verb `bind` on the role
/// (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#restrictions-on-role-binding-creation-or-update>).
#[must_use]
pub fn may_bind(
    requester: &Requester,
    namespace: Option<&str>,
    role: &RoleReference,
) -> SubjectAccessReview {
    review(requester, on_role(namespace, role, "bind"))
}

/// Returns the attributes of a verb on a role.
#[must_use]
pub fn on_role(namespace: Option<&str>, role: &RoleReference, verb: &str) -> ResourceAttributes {
    ResourceAttributes {
        namespace: namespace.map(ToOwned::to_owned),
        verb: Some(verb.to_owned()),
        group: Some(RBAC_GROUP.to_owned()),
        resource: Some(role.kind.plural().to_owned()),
        name: Some(role.name.clone()),
        ..ResourceAttributes::default()
    }
}

/// Creates the review of whether a requester has this right.
#[must_use]
pub fn review(requester: &Requester, right: ResourceAttributes) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(requester.user.clone()),
            uid: Some(requester.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(requester.groups.clone()),
            resource_attributes: Some(right),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests;
