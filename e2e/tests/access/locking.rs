//! Locks: what they end, what they refuse, and that new access can be had when they are gone.

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use oz_core::api::{AccessLock, EndReason, Phase};
use oz_e2e::{Scene, TEMPLATE, conditions_line, exec_request, refused};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use crate::scene;

async fn lock(scene: &Scene, target: &Value) -> Result<Api<AccessLock>> {
    let lock = serde_json::from_value(json!({
        "metadata": {"name": scene.name()}, "spec": {"target": target, "reason": "stolen laptop"},
    }))?;
    let locks = Api::<AccessLock>::all(scene.admin.clone());
    locks.create(&PostParams::default(), &lock).await?;
    Ok(locks)
}

/// Alice gets in, is locked out, may not ask, and gets in again.
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
    // What it ended stays ended.
    assert_eq!(
        alice.phase("first", Phase::Revoked).await?.phase,
        Phase::Revoked
    );
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_is_locked_lets_nobody_in_until_it_is_unlocked() -> Result<()> {
    let scene = scene("locked-ns").await?;
    let target = json!({"namespace": scene.name()});
    locked_and_unlocked(&scene, &target).await
}

#[tokio::test]
async fn a_template_that_is_locked_lets_nobody_in_until_it_is_unlocked() -> Result<()> {
    let scene = scene("locked-template").await?;
    let target = json!({"template": {"namespace": scene.name(), "name": TEMPLATE}});
    locked_and_unlocked(&scene, &target).await
}
