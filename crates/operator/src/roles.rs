//! The rules of roles, and the users who may hand out rights: read at the moment of the decision.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{Api, PostParams};
use oz_api::{RoleKind, RoleReference};
use oz_composites::rights::{Act, Found, Want};
use oz_core::controller::Failure;
use oz_engine::Cx;
use oz_runtime::within;

/// Returns the rules of a role; `None` if the role does not exist.
///
/// # Errors
/// The failure to read the role.
pub(crate) async fn rules(
    cx: &Cx,
    namespace: Option<&str>,
    role: &RoleReference,
) -> Result<Option<Vec<PolicyRule>>, Failure> {
    let name = &role.name;
    let rules = match role.kind {
        RoleKind::Role => {
            let role = cx.get::<Role>(namespace, name).await?;
            role.map(|role| role.rules)
        }
        RoleKind::ClusterRole => {
            let role = cx.get::<ClusterRole>(None, name).await?;
            role.map(|role| role.rules)
        }
    };
    Ok(rules.map(Option::unwrap_or_default))
}

/// Sends a review to the API server, and returns the result.
///
/// # Errors
/// The failure of the call.
pub(crate) async fn may(cx: &Cx, review: &SubjectAccessReview) -> Result<bool, Failure> {
    let reviews: Api<SubjectAccessReview> = Api::all(cx.client().clone());
    let user = review.spec.user.as_deref().unwrap_or_default();
    let what = || format!("failed to check the rights of {user}");
    let parameters = PostParams::default();
    let answer = within(reviews.create(&parameters, review), what).await;
    let answer = answer.map_err(oz_engine::of_call)?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Returns the rights of authors that an operation on a child of a composite requires, as far as
/// they are known.
pub(crate) async fn found(cx: &Cx, want: &Want) -> Found {
    let rules = match &want.act {
        Act::Bind(role) => rules(cx, want.namespace.as_deref(), role).await,
        Act::Write(..) | Act::Touch(..) => Ok(None),
    };
    let lacks = async {
        for (author, review) in want.reviews() {
            if !may(cx, &review).await? {
                return Ok(Some(author.user.clone()));
            }
        }
        Ok(None)
    };
    let lacks = lacks.await;
    Found { lacks, rules }
}
