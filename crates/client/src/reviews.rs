//! Reviews of emergencies and of break-glass: the reviews that wait for a user, and writing a finding.

use jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use oz_api::{AccessReview, Finding, Requester, conditions, labels};
use oz_core::access::emergency::review::is_reviewer;
use oz_core::kinds::Rules as _;
use oz_core::lifecycle::window::has_come;
use oz_core::validate::Violation;
use serde_json::json;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// Lists the reviews in the chosen namespace or in all namespaces, those that are due first.
pub async fn all(cluster: &Cluster, everywhere: bool) -> Result<Vec<AccessReview>> {
    let api = cluster.api_in::<AccessReview>(everywhere);
    let listed = cluster.answer(api.list(&ListParams::default())).await?;
    let mut reviews = listed.items;
    reviews.sort_by_key(|review| (review.spec.is_written(), review.spec.due_at));
    Ok(reviews)
}

/// Checks whether a review waits for `me`.
pub fn waits_for(review: &AccessReview, me: &Requester) -> bool {
    !review.spec.is_written() && is_reviewer(review, me)
}

/// Checks whether the review was not written in time.
pub fn is_overdue(review: &AccessReview, now: Timestamp) -> bool {
    let told = review
        .status
        .as_ref()
        .is_some_and(|status| conditions::is_true(&status.conditions, conditions::OVERDUE));
    !review.spec.is_written() && (told || has_come(now, review.spec.due_at))
}

/// Returns the review of the request with this UID, in whichever namespace: that of a deleted namespace is in oz's own.
///
/// # Errors
/// There is no such review, or the user may not list the reviews of all namespaces.
pub async fn find_by_uid(cluster: &Cluster, uid: &str) -> Result<AccessReview> {
    let api = cluster.api_in::<AccessReview>(true);
    let selected = format!("{}={}", labels::REQUEST_UID, labels::value(uid));
    let selected = ListParams::default().labels(&selected);
    let listed = cluster.answer(api.list(&selected));
    let listed = listed.await.map_err(|failure| match failure.is_forbidden() {
        true => failure.next(
            "a UID requires the ClusterRole oz-review-access in all namespaces; with that role in one namespace, \
             give the name of the review and the namespace (-n)",
        ),
        false => failure,
    })?;
    choose(listed.items, uid).ok_or_else(|| {
        Failure::new(format!(
            "there is no review of a request with the UID {uid}"
        ))
        .next("`ozctl reviews --all -A` lists the reviews of all namespaces")
    })
}

/// Returns the review of the request with this UID, one without a finding first.
fn choose(mut reviews: Vec<AccessReview>, uid: &str) -> Option<AccessReview> {
    let is_about = |review: &AccessReview| {
        let about = review.spec.access_request_ref.as_ref();
        about.is_some_and(|about| about.uid == uid)
    };
    reviews.retain(is_about);
    reviews.sort_by_key(|review| review.spec.is_written());
    reviews.into_iter().next()
}

/// Writes the finding into the review of this name in `namespace`.
pub async fn write(
    cluster: &Cluster,
    (namespace, name): (&str, &str),
    finding: Finding,
    reason: &str,
) -> Result<AccessReview> {
    let api = Api::<AccessReview>::namespaced(cluster.client.clone(), namespace);
    let mut wanted = AccessReview::default();
    (wanted.spec.finding, wanted.spec.reason) = (Some(finding), Some(reason.to_owned()));
    // A finding that the webhook would reject is reported without calling it.
    let violations = wanted.violations(Timestamp::now());
    if !violations.is_empty() {
        return Err(Failure::new(Violation::list(&violations)));
    }
    let patch = Patch::Merge(json!({ "spec": { "finding": finding, "reason": reason } }));
    let parameters = PatchParams::default();
    let written = cluster.answer(api.patch(name, &parameters, &patch)).await;
    written.map_err(
        |failure| match failure.is_forbidden() || failure.is_not_found() {
            true => failure.next("`ozctl reviews` lists the reviews that wait for you"),
            false => failure,
        },
    )
}

#[cfg(test)]
mod tests {
    use oz_api::AccessRequestReference;

    use super::*;

    fn review(namespace: &str, uid: &str, finding: Option<Finding>) -> AccessReview {
        let mut review = AccessReview::default();
        review.metadata.namespace = Some(namespace.to_owned());
        review.spec.finding = finding;
        review.spec.access_request_ref = Some(AccessRequestReference {
            uid: uid.to_owned(),
            ..AccessRequestReference::default()
        });
        review
    }

    #[test]
    fn review_by_uid_is_that_of_the_request_and_without_a_finding_first() {
        let written = Some(Finding::Justified);
        let rows = [
            (vec![], None),
            (vec![review("shop", "b", None)], None),
            (vec![review("shop", "a", None)], Some("shop")),
            (vec![review("shop", "a", written)], Some("shop")),
            (
                vec![review("shop", "a", written), review("oz-system", "a", None)],
                Some("oz-system"),
            ),
            (vec![AccessReview::default()], None),
        ];
        for (number, (reviews, expected)) in rows.into_iter().enumerate() {
            let found = choose(reviews, "a").and_then(|review| review.metadata.namespace);
            assert_eq!(found.as_deref(), expected, "{number}");
        }
    }
}
