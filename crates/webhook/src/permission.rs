//! The checks of a user's own rights: the webhook asks the API server's authorization, by
//! SubjectAccessReview, for the user that the API server authenticated.

use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use oz_admission::{Rejection, UserInfo};
use oz_core::kinds::Right;

/// The timeout of all checks together: well below the time that the API server waits for the
/// webhook.
const PERMISSION_TIMEOUT: Duration = Duration::from_secs(3);

/// Checks whether the user has all rights on all resources, as a cluster administrator does.
///
/// # Errors
/// The failure of the check; the caller must then deny the request.
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

/// Checks whether the user has one right.
///
/// # Errors
/// The failure of the check; the caller must then deny the request.
pub(crate) async fn may(
    client: &Client,
    user: &UserInfo,
    right: ResourceAttributes,
) -> Result<bool, Rejection> {
    allowed(client, user, review(user, right)).await
}

/// Returns the rights that the user does not have in the namespace.
///
/// # Errors
/// The failure of the check; the caller must then deny the request.
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

/// Sends a review that the caller prepared to the API server, and returns the result.
///
/// # Errors
/// As [`missing`].
pub(crate) async fn allowed(
    client: &Client,
    user: &UserInfo,
    mut review: SubjectAccessReview,
) -> Result<bool, Rejection> {
    // Only the webhook has the extra fields of the identity provider.
    review.spec.extra = (!user.extra.is_empty()).then(|| user.extra.clone());
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let parameters = PostParams::default();
    let answer = within_permission_timeout(user, reviews.create(&parameters, &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Checks whether the user may end the requests of other users in the namespace, for a kind that
/// users request.
///
/// # Errors
/// The failure of the check.
pub(crate) async fn may_revoke(
    client: &Client,
    user: &UserInfo,
    namespace: Option<&str>,
    (group, plural): (&str, &str),
) -> Result<bool, Rejection> {
    let revoking = ResourceAttributes {
        namespace: namespace.map(ToOwned::to_owned),
        group: Some(group.to_owned()),
        verb: Some("revoke".to_owned()),
        resource: Some(plural.to_owned()),
        ..ResourceAttributes::default()
    };
    allowed(client, user, review(user, revoking)).await
}

/// Waits for a required read about a user; denies the request after a failure or the timeout.
pub(crate) async fn within_permission_timeout<T>(
    user: &UserInfo,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, Rejection> {
    let unknown = |why: String| {
        Rejection::new(
            503,
            "PermissionsUnknown",
            format!(
                "failed to check the rights of {}: {why}; try again",
                user.username
            ),
        )
    };
    match tokio::time::timeout(PERMISSION_TIMEOUT, answer).await {
        Ok(answer) => answer.map_err(|error| unknown(error.to_string())),
        Err(_) => Err(unknown(format!(
            "no response within {PERMISSION_TIMEOUT:?}"
        ))),
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
