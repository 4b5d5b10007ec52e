//! Whether a user may do something themselves: the API server's own authorization is asked, by
//! SubjectAccessReview, as the user whom it authenticated.

use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use oz_admission::{Rejection, UserInfo};
use oz_core::kinds::Right;

/// How long all answers together may take: well below what the API server waits for ours.
const PERMISSION_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether the user may do everything with everything, as an administrator of the cluster may.
///
/// # Errors
/// When it could not be found out; what depends on it must then be refused.
pub(crate) async fn is_administrator(client: &Client, user: &UserInfo) -> Result<bool, Rejection> {
    let any = || Some("*".to_owned());
    let everything = ResourceAttributes {
        group: any(),
        verb: any(),
        resource: any(),
        ..ResourceAttributes::default()
    };
    allowed(client, user, review(user, everything)).await
}

/// Whether the user has one right.
///
/// # Errors
/// When it could not be found out; what depends on it must then be refused.
pub(crate) async fn may(
    client: &Client,
    user: &UserInfo,
    right: ResourceAttributes,
) -> Result<bool, Rejection> {
    allowed(client, user, review(user, right)).await
}

/// Those of the rights that the user does not have in the namespace.
///
/// # Errors
/// When it could not be found out; what depends on it must then be refused.
pub(crate) async fn missing(
    client: &Client,
    user: &UserInfo,
    namespace: &str,
    rights: Vec<Right>,
) -> Result<Vec<Right>, Rejection> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let parameters = PostParams::default();
    let answers = try_join_all(rights.into_iter().map(async |right| {
        let answer = reviews
            .create(&parameters, &review(user, on(namespace, &right)))
            .await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        kube::Result::Ok((right, allowed))
    }));
    let answers = within_permission_timeout(user, answers).await?;
    Ok(answers
        .into_iter()
        .filter(|(_, allowed)| !allowed)
        .map(|(right, _)| right)
        .collect())
}

/// What the API server answers to a review that was put together elsewhere.
///
/// # Errors
/// As [`missing`].
pub(crate) async fn allowed(
    client: &Client,
    user: &UserInfo,
    mut review: SubjectAccessReview,
) -> Result<bool, Rejection> {
    // What the identity provider adds is known here only.
    review.spec.extra = (!user.extra.is_empty()).then(|| user.extra.clone());
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let parameters = PostParams::default();
    let answer = within_permission_timeout(user, reviews.create(&parameters, &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Whether the user may end what others asked for in the namespace, of a kind that people request.
///
/// # Errors
/// When it could not be found out.
pub(crate) async fn may_revoke(
    client: &Client,
    user: &UserInfo,
    namespace: &str,
    (group, plural): (&str, &str),
) -> Result<bool, Rejection> {
    let revoking = ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        group: Some(group.to_owned()),
        verb: Some("revoke".to_owned()),
        resource: Some(plural.to_owned()),
        ..ResourceAttributes::default()
    };
    allowed(client, user, review(user, revoking)).await
}

/// Waits for what must be known of a user; refuses if it does not come.
pub(crate) async fn within_permission_timeout<T>(
    user: &UserInfo,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, Rejection> {
    let unknown = |why: String| {
        Rejection::new(
            503,
            "PermissionsUnknown",
            format!(
                "failed to find out what {} may do: {why}; try again",
                user.username
            ),
        )
    };
    match tokio::time::timeout(PERMISSION_TIMEOUT, answer).await {
        Ok(answer) => answer.map_err(|error| unknown(error.to_string())),
        Err(_) => Err(unknown(format!("no answer within {PERMISSION_TIMEOUT:?}"))),
    }
}

fn on(namespace: &str, right: &Right) -> ResourceAttributes {
    ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        verb: Some(right.verb.to_owned()),
        resource: Some(right.resource.to_owned()),
        subresource: right.subresource.map(ToOwned::to_owned),
        ..ResourceAttributes::default()
    }
}

fn review(user: &UserInfo, attributes: ResourceAttributes) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.username.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(user.groups.clone()),
            extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
            resource_attributes: Some(attributes),
            non_resource_attributes: None,
        },
        ..SubjectAccessReview::default()
    }
}
