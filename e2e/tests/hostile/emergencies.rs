//! Obtaining access by emergencies that are not justified, and evading their access reviews.

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::{AccessReview, ExecAccessRequest, Finding, labels};
use oz_e2e::{Person, emergency_request, emergency_template, found, refused};
use serde_json::json;

use crate::Stage;

const REQUESTS: &str = "execaccessrequests";
const MALLORY: Person = Person::new("mallory", &["devs", "security"]);
const ERIN: Person = Person::new("erin", &["security"]);
const FRANK: Person = Person::new("frank", &["security"]);

/// Returns a user on call with a UID, who is also in the group of reviewers.
const fn on_call(user: &'static str, uid: &'static str) -> Person {
    Person {
        user,
        uid,
        groups: &["devs", "oncall", "security"],
    }
}

async fn stage(prefix: &str) -> Result<Stage> {
    let stage = Stage::set(prefix).await?;
    stage.may_review("security").await?;
    stage
        .template(&emergency_template("guarded", "24h", 16))
        .await?;
    Ok(stage)
}

/// Declares an emergency as a user, and returns its access review.
async fn had(stage: &Stage, by: Person) -> Result<AccessReview> {
    by.has_emergency(stage, "inc", "guarded").await?;
    let requests = stage.requests("admin").await?;
    requests.ready("inc").await?;
    stage.review_of("inc").await
}

/// Declaring an emergency as a user who is not listed for emergencies, with every right to create requests: the
/// webhook denies it.
#[tokio::test]
async fn emergency_of_unlisted_user_is_refused() -> Result<()> {
    let stage = stage("not-named").await?;
    let why = refused(MALLORY.has_emergency(&stage, "inc", "guarded").await)?;
    assert!(
        why.contains("template guarded does not grant mallory access in emergencies"),
        "{why}"
    );
    Ok(())
}

/// Declaring an emergency without a reason, or with one that is blank, contains control characters or has 1 MiB: oz
/// denies it.
#[tokio::test]
async fn an_emergency_without_a_reason() -> Result<()> {
    let stage = stage("no-reason").await?;
    let dana = on_call("dana-reason", "u-reason");
    let long = "x".repeat(1 << 20);
    for reason in [
        None,
        Some(" \n"),
        Some("\u{202e}24-CNI"),
        Some(long.as_str()),
    ] {
        let mut request = emergency_request("inc", "guarded");
        request.spec.reason = reason.map(ToOwned::to_owned);
        let asked = dana.create(&stage.admin, stage.name(), REQUESTS, &request);
        let shown: String = reason.unwrap_or_default().chars().take(10).collect();
        refused(asked.await).with_context(|| shown)?;
    }
    Ok(())
}

/// Declaring an emergency with the stamp of a user on call: the webhook overwrites the stamp with the requester, and
/// denies the request because the requester is not listed.
#[tokio::test]
async fn an_emergency_with_a_stamp_that_was_copied() -> Result<()> {
    let stage = stage("copied-stamp").await?;
    had(&stage, on_call("dana-stamp", "u-stamp")).await?;
    let own = stage.api::<ExecAccessRequest>().get("inc").await?;
    let mut copy = emergency_request("mine", "guarded");
    copy.metadata.annotations = own.metadata.annotations;
    let asked = MALLORY.create(&stage.admin, stage.name(), REQUESTS, &copy);
    let why = refused(asked.await)?;
    assert!(
        why.contains("does not grant mallory access in emergencies"),
        "{why}"
    );
    Ok(())
}

/// Turning a request that requires approvals into an emergency, as an administrator: the API server denies the
/// change, because the spec is immutable.
#[tokio::test]
async fn a_request_that_becomes_an_emergency() -> Result<()> {
    let stage = stage("becomes").await?;
    let mut request = emergency_request("inc", "guarded");
    request.spec.emergency = None;
    MALLORY
        .create(&stage.admin, stage.name(), REQUESTS, &request)
        .await?;
    let requests = stage.api::<ExecAccessRequest>();
    let patch = Patch::Merge(json!({ "spec": { "emergency": true } }));
    let patched = requests.patch("inc", &PatchParams::default(), &patch).await;
    let why = refused(patched)?;
    assert!(why.contains("immutable"), "{why}");
    Ok(())
}

/// Reviewing one's own emergency, also under another user name that has the same UID: the webhook denies it.
#[tokio::test]
async fn ones_own_emergency() -> Result<()> {
    let stage = stage("own-review").await?;
    let review = had(&stage, on_call("dana-own", "u-own")).await?;
    for by in [on_call("dana-own", "u-own"), on_call("alter", "u-own")] {
        let why = refused(
            by.reviews(&stage, &review.name_any(), &found(Finding::Justified))
                .await,
        )?;
        assert!(why.contains("another reviewer is required"), "{why}");
    }
    Ok(())
}

/// Reviewing an emergency as an administrator with every right, but without being listed as a reviewer: the webhook
/// denies it.
#[tokio::test]
async fn a_review_by_an_administrator() -> Result<()> {
    let stage = stage("root-review").await?;
    let review = had(&stage, on_call("dana-root", "u-root")).await?;
    let reviews = stage.api::<AccessReview>();
    let patch = Patch::Merge(found(Finding::Justified));
    let patched = reviews
        .patch(&review.name_any(), &PatchParams::default(), &patch)
        .await;
    let why = refused(patched)?;
    assert!(why.contains("is not a reviewer of"), "{why}");
    Ok(())
}

/// Reviewing an emergency a second time, to replace the finding: oz denies it to every reviewer.
#[tokio::test]
async fn reviewing_twice() -> Result<()> {
    let stage = stage("twice-review").await?;
    let name = had(&stage, on_call("dana-twice", "u-twice"))
        .await?
        .name_any();
    ERIN.reviews(&stage, &name, &found(Finding::Unjustified))
        .await?;
    for by in [ERIN, FRANK] {
        refused(by.reviews(&stage, &name, &found(Finding::Justified)).await)?;
    }
    let now = stage.api::<AccessReview>().get(&name).await?;
    assert_eq!(now.spec.finding, Some(Finding::Unjustified));
    Ok(())
}

/// Changing or deleting the finding of an access review, or its seal, as an administrator: oz denies it.
#[tokio::test]
async fn a_finding_that_is_changed() -> Result<()> {
    let stage = stage("changed-finding").await?;
    let name = had(&stage, on_call("dana-changed", "u-changed"))
        .await?
        .name_any();
    ERIN.reviews(&stage, &name, &found(Finding::Unjustified))
        .await?;
    let reviews: Api<AccessReview> = stage.api();
    for edit in [
        json!({ "spec": { "finding": "Justified" } }),
        json!({ "spec": { "reason": "another" } }),
        json!({ "spec": { "finding": null, "reason": null } }),
        json!({ "metadata": { "annotations": { labels::REVIEW: "other" } } }),
        json!({ "metadata": { "annotations": { labels::REVIEWED_BY: "frank" } } }),
        json!({ "metadata": { "labels": { labels::REQUEST_UID: "other" } } }),
    ] {
        let patched = reviews
            .patch(&name, &PatchParams::default(), &Patch::Merge(&edit))
            .await;
        refused(patched).with_context(|| edit.to_string())?;
    }
    Ok(())
}

/// Changing the requester, the reviewers, the due time or the request of an access review while writing its finding:
/// oz denies it.
#[tokio::test]
async fn subject_of_access_review_is_immutable() -> Result<()> {
    let stage = stage("about-review").await?;
    let name = had(&stage, on_call("dana-about", "u-about"))
        .await?
        .name_any();
    for edit in [
        json!({ "requester": { "user": "mallory" } }),
        json!({ "reviewers": { "users": ["mallory"] } }),
        json!({ "dueAt": "2126-01-01T00:00:00Z" }),
        json!({ "accessRequestRef": { "uid": "other" } }),
    ] {
        let mut change = found(Finding::Justified);
        for (field, value) in edit.as_object().into_iter().flatten() {
            change["spec"][field] = value.clone();
        }
        refused(ERIN.reviews(&stage, &name, &change).await).with_context(|| edit.to_string())?;
    }
    Ok(())
}

/// Writing a reason for a finding that is empty, contains control characters or has 1 MiB: oz denies it.
#[tokio::test]
async fn a_finding_that_looks_like_another() -> Result<()> {
    let stage = stage("marks").await?;
    let name = had(&stage, on_call("dana-marks", "u-marks"))
        .await?
        .name_any();
    let long = "x".repeat(1 << 20);
    for reason in [
        "",
        " ",
        "\u{202e}deifitsuj",
        "a\u{2066}b",
        "\u{1b}[2J",
        long.as_str(),
    ] {
        let change = json!({ "spec": { "finding": "Justified", "reason": reason } });
        let shown: String = reason.chars().take(10).collect();
        refused(ERIN.reviews(&stage, &name, &change).await).with_context(|| shown)?;
    }
    Ok(())
}

/// Creating an access review that already has a finding, as an administrator: the webhook denies it.
#[tokio::test]
async fn a_review_that_is_forged() -> Result<()> {
    let stage = stage("forged-review").await?;
    let review = had(&stage, on_call("dana-forged", "u-forged")).await?;
    let mut forged = review.clone();
    forged.metadata.name = Some("another".to_owned());
    forged.metadata.resource_version = None;
    forged.metadata.uid = None;
    forged.spec.finding = Some(Finding::Justified);
    forged.spec.reason = Some("well".to_owned());
    let reviews: Api<AccessReview> = stage.api();
    let why = refused(reviews.create(&PostParams::default(), &forged).await)?;
    assert!(why.contains("only oz's operator"), "{why}");
    Ok(())
}

/// Deleting an access review, before or after its finding is written, as an administrator: the webhook denies it.
#[tokio::test]
async fn a_review_that_is_deleted() -> Result<()> {
    let stage = stage("deleted-review").await?;
    let name = had(&stage, on_call("dana-deleted", "u-deleted"))
        .await?
        .name_any();
    let reviews: Api<AccessReview> = stage.api();
    let why = refused(reviews.delete(&name, &DeleteParams::default()).await)?;
    assert!(why.contains("an open review cannot be deleted"), "{why}");
    ERIN.reviews(&stage, &name, &found(Finding::Justified))
        .await?;
    refused(reviews.delete(&name, &DeleteParams::default()).await)?;
    Ok(())
}

/// Making another object the owner of an access review, so that the review is deleted with it, as an administrator:
/// oz denies it.
#[tokio::test]
async fn a_review_that_is_to_go_with_something_else() -> Result<()> {
    let stage = stage("owned-review").await?;
    let name = had(&stage, on_call("dana-owned", "u-owned"))
        .await?
        .name_any();
    let reviews: Api<AccessReview> = stage.api();
    let patch = json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u",
    }] } });
    let patched = reviews
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    refused(patched)?;
    Ok(())
}
