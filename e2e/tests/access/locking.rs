//! Locks: the access that they end, the requests that they deny, and new access after their deletion.

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use oz_api::{AccessLock, EndReason, Phase, RequestStatus};
use oz_e2e::{
    Person, Scene, TEMPLATE, answer_to, approval_rule, approved_template, conditions_line,
    exec_request, refused,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use crate::scene;

const ANSWERS: &str = "accessrequestapprovals";

async fn lock(scene: &Scene, target: &Value) -> Result<Api<AccessLock>> {
    let lock = serde_json::from_value(json!({
        "metadata": {"name": scene.name()}, "spec": {"target": target, "reason": "stolen laptop"},
    }))?;
    let locks = Api::<AccessLock>::all(scene.admin.clone());
    locks.create(&PostParams::default(), &lock).await?;
    Ok(locks)
}

/// Checks that alice gets access, is locked out, may not request access, and gets access again.
async fn locked_and_unlocked(scene: &Scene, target: &Value) -> Result<()> {
    let alice = scene.requests("alice").await?;
    alice
        .create(&exec_request("first", TEMPLATE, "30m"))
        .await?;
    let granted = alice.ready("first").await?;
    let locks = lock(scene, target).await?;
    let status = alice.phase("first", Phase::Revoked).await?;
    assert_eq!(
        status.ending.clone().context("no ending")?.reason,
        EndReason::Locked
    );
    let said = format!("is locked by AccessLock {}: stolen laptop", scene.name());
    let line = conditions_line(&status);
    assert!(line.contains(&said), "{line}");
    let (_, binding) = scene.grant(&granted.object_name()).await?;
    assert!(binding.is_none());
    let why = refused(alice.create(&exec_request("second", TEMPLATE, "30m")).await)?;
    assert!(why.contains(&said), "{why}");

    locks.delete(scene.name(), &DeleteParams::default()).await?;
    let third = exec_request("third", TEMPLATE, "30m");
    eventually(
        "the webhook to see that it is unlocked",
        CONDITION_TIMEOUT,
        async || Ok(alice.create(&third).await.ok()),
    )
    .await?;
    alice.ready("third").await?;
    // The access that it ended stays ended.
    assert_eq!(
        alice.phase("first", Phase::Revoked).await?.phase,
        Phase::Revoked
    );
    Ok(())
}

#[tokio::test]
async fn locked_namespace_refuses_requests_until_unlocked() -> Result<()> {
    let scene = scene("locked-ns").await?;
    let target = json!({"namespace": scene.name()});
    locked_and_unlocked(&scene, &target).await
}

#[tokio::test]
async fn locked_template_refuses_requests_until_unlocked() -> Result<()> {
    let scene = scene("locked-template").await?;
    let target = json!({"template": {"namespace": scene.name(), "name": TEMPLATE}});
    locked_and_unlocked(&scene, &target).await
}

/// Creates a request of alice that waits, since a lock blocks one of the two users who approved it. The lock has the
/// name of the scene; no other test uses the name of the locked user.
async fn waits_for_who_is_locked_out(
    scene: &Scene,
    locked: &'static str,
) -> Result<Api<AccessLock>> {
    scene.may_approve("pairs").await?;
    let rules = vec![
        approval_rule("security", &[locked], &[], 1),
        approval_rule("sre", &["bob"], &[], 1),
    ];
    scene
        .template(&approved_template("asked", rules, "10m"))
        .await?;
    let alice = scene.requests("alice").await?;
    alice.create(&exec_request("mine", "asked", "5m")).await?;
    let asked = |status: &RequestStatus| status.approval.is_some();
    let request = alice.until("mine", "to wait for others", asked).await?;
    let give = async |user: &'static str, name: &str| {
        let (by, answer) = (
            Person::new(user, &["pairs"]),
            answer_to(&request, name, true)?,
        );
        by.create(&scene.admin, scene.name(), ANSWERS, &answer)
            .await?;
        anyhow::Ok(())
    };
    give(locked, "one").await?;
    let locks = lock(scene, &json!({"user": locked})).await?;
    // A lock takes effect as soon as it exists.
    let void = alice.until("mine", "not to count who is locked out", |status| {
        conditions_line(status).contains("by a locked user")
    });
    void.await?;
    give("bob", "two").await?;
    let half = alice.until("mine", "to count the other", |status| {
        let line = conditions_line(status);
        line.contains("waiting for security") && !line.contains("sre:")
    });
    half.await?;
    Ok(locks)
}

#[tokio::test]
async fn request_continues_when_lock_on_approver_is_removed() -> Result<()> {
    let scene = scene("unlocked").await?;
    let locks = waits_for_who_is_locked_out(&scene, "grace-who-is-unlocked").await?;
    locks.delete(scene.name(), &DeleteParams::default()).await?;
    scene.requests("alice").await?.ready("mine").await?;
    Ok(())
}

#[tokio::test]
async fn request_continues_when_lock_on_approver_expires() -> Result<()> {
    let scene = scene("lock-ends").await?;
    let locks = waits_for_who_is_locked_out(&scene, "grace-whose-lock-ends").await?;
    let until = Timestamp::now() + SignedDuration::from_secs(5);
    let sooner = Patch::Merge(json!({"spec": {"until": until}}));
    locks
        .patch(scene.name(), &PatchParams::default(), &sooner)
        .await?;
    scene.requests("alice").await?.ready("mine").await?;
    locks.delete(scene.name(), &DeleteParams::default()).await?;
    Ok(())
}
