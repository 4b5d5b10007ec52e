//! Reviews of emergencies and of break-glass: the reviews that wait for a user, and writing a finding.

use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use oz_api::{AccessReview, Finding, Requester, conditions};
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

/// Writes the finding.
pub async fn write(
    cluster: &Cluster,
    name: &str,
    finding: Finding,
    reason: &str,
) -> Result<AccessReview> {
    let api = cluster.api::<AccessReview>();
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
