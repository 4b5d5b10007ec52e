//! Evading a lock, or creating a lock that has another effect than it states.

use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use oz_api::{AccessLock, EndReason, Phase};
use oz_e2e::{
    NAMESPACE, TEMPLATE, approval_rule, approved_template, conditions_line, exec_request, refused,
};
use oz_testkit::eventually;
use serde_json::{Value, json};

use crate::requests::SOON;
use crate::{Stage, SystemGuard};

fn locks(client: &Client) -> Api<AccessLock> {
    Api::all(client.clone())
}

/// Returns a lock with the name of the stage.
fn lock(stage: &Stage, target: &Value) -> serde_json::Result<AccessLock> {
    serde_json::from_value(json!({
        "metadata": {"name": stage.name()}, "spec": {"target": target, "reason": "stolen laptop"},
    }))
}

/// Creates a lock with this spec as the administrator, and returns the response.
async fn made(stage: &Stage, spec: Value) -> Result<kube::Result<AccessLock>> {
    let lock = serde_json::from_value(json!({"metadata": {"name": stage.name()}, "spec": spec}))?;
    Ok(locks(&stage.admin)
        .create(&PostParams::default(), &lock)
        .await)
}

/// Creates a user and a group for this stage alone, with the right to lock and unlock; returns the group and a client.
async fn keeper(stage: &Stage) -> Result<(String, Client)> {
    let user = format!("keeper-{}", stage.name());
    let group = format!("keepers-{}", stage.name());
    stage.cluster.issue_kubeconfig(&user, &[&group])?;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": user},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oz-lock-access",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }))?;
    let bindings: Api<ClusterRoleBinding> = Api::all(stage.admin.clone());
    bindings.create(&PostParams::default(), &binding).await?;
    let client = stage.cluster.client(&user).await?;
    eventually("the API server to know of the role", SOON, async || {
        Ok(locks(&client).list(&ListParams::default()).await.ok())
    })
    .await?;
    Ok((group, client))
}

/// Tries to remove, shorten and change a lock as a user that the lock covers, and checks each denial.
async fn cannot_be_rid_of_it(stage: &Stage, target: &Value, keeper: &Client) -> Result<()> {
    let by_admin = locks(&stage.admin);
    let locks = locks(keeper);
    let one = lock(stage, target)?;
    locks.create(&PostParams::default(), &one).await?;
    let name = stage.name();
    let gone = locks.delete(name, &DeleteParams::default()).await;
    let why = refused(gone.map(drop))?;
    assert!(
        why.contains("a locked user may not change or delete the lock"),
        "{why}"
    );
    let mine = ListParams::default().fields(&format!("metadata.name={name}"));
    let gone = locks
        .delete_collection(&DeleteParams::default(), &mine)
        .await;
    refused(gone.map(drop))?;
    for patch in [
        json!({"spec": {"until": "2020-01-01T00:00:00Z"}}),
        json!({"metadata": {"labels": {"mine": "true"}}}),
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "none", "uid": "none"},
        ]}}),
    ] {
        let patch = Patch::Merge(patch);
        let changed = locks.patch(name, &PatchParams::default(), &patch).await;
        refused(changed.map(drop))?;
    }
    by_admin.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Removing or shortening a lock on oneself with the right to lock and unlock, individually, as a collection, or
/// through the garbage collector: the admission policy denies it; a user in a group that repairs clusters removes the
/// lock.
#[tokio::test]
async fn removing_ones_own_lock() -> Result<()> {
    let stage = Stage::set("own-lock").await?;
    let (_, client) = keeper(&stage).await?;
    let target = json!({"user": format!("keeper-{}", stage.name())});
    cannot_be_rid_of_it(&stage, &target, &client).await
}

/// Removing or shortening a lock on one's own group: the admission policy denies it.
#[tokio::test]
async fn removing_the_lock_of_ones_group() -> Result<()> {
    let stage = Stage::set("group-lock").await?;
    let (group, client) = keeper(&stage).await?;
    cannot_be_rid_of_it(&stage, &json!({"group": group}), &client).await
}

/// Creating a lock with an owner reference, so that the garbage collector deletes it: the API server denies it.
#[tokio::test]
async fn a_lock_with_an_owner() -> Result<()> {
    let stage = Stage::set("owned-lock").await?;
    let mut owned = lock(&stage, &json!({"namespace": stage.name()}))?;
    owned.metadata.owner_references = Some(vec![serde_json::from_value(
        json!({"apiVersion": "v1", "kind": "Namespace", "name": "none", "uid": "none"}),
    )?]);
    let made = locks(&stage.admin)
        .create(&PostParams::default(), &owned)
        .await;
    let why = refused(made)?;
    assert!(why.contains("no owner"), "{why}");
    Ok(())
}

/// Changing the target, the reason or the emergency exception of a lock, as an administrator: the API server denies it;
/// only `until` can be changed.
#[tokio::test]
async fn a_lock_that_is_edited() -> Result<()> {
    let stage = Stage::set("edited-lock").await?;
    let target = json!({"namespace": stage.name()});
    made(&stage, json!({"target": target, "reason": "INC-42"})).await??;
    let locks = locks(&stage.admin);
    for patch in [
        json!({"spec": {"target": {"namespace": "another"}}}),
        json!({"spec": {"reason": "another"}}),
        json!({"spec": {"exceptEmergency": true}}),
    ] {
        let patch = Patch::Merge(patch);
        let changed = locks
            .patch(stage.name(), &PatchParams::default(), &patch)
            .await;
        let why = refused(changed)?;
        assert!(why.contains("only until can be changed"), "{why}");
    }
    let sooner = Patch::Merge(json!({"spec": {"until": "2020-01-01T00:00:00Z"}}));
    locks
        .patch(stage.name(), &PatchParams::default(), &sooner)
        .await?;
    Ok(())
}

/// A lock with a reason of 1 MiB, which every denied user would receive: the API server denies it.
#[tokio::test]
async fn a_lock_with_a_reason_of_a_mebibyte() -> Result<()> {
    let stage = Stage::set("long-reason").await?;
    let target = json!({"namespace": stage.name()});
    let reason = "a".repeat(1 << 20);
    let why = refused(made(&stage, json!({"target": target, "reason": reason})).await?)?;
    assert!(why.contains("spec.reason"), "{why}");
    Ok(())
}

/// A lock without a reason, or with a blank reason, or with bidirectional or control characters in it: the API server
/// denies it.
#[tokio::test]
async fn a_lock_without_a_reason() -> Result<()> {
    let stage = Stage::set("no-reason").await?;
    let target = json!({"namespace": stage.name()});
    for reason in ["", "  ", "\u{202e}done", "\u{1b}[2J"] {
        let spec = json!({"target": target, "reason": reason});
        let why = refused(made(&stage, spec).await?)?;
        assert!(why.contains("spec.reason"), "{why}");
    }
    Ok(())
}

/// A lock until an instant in a thousand years, until a past instant, or until an invalid instant: the API server
/// denies it; a permanent lock omits `until`.
#[tokio::test]
async fn a_lock_until_a_thousand_years_from_now() -> Result<()> {
    let stage = Stage::set("until").await?;
    let target = json!({"namespace": stage.name()});
    for until in ["3026-01-01T00:00:00Z", "2020-01-01T00:00:00Z", "tomorrow"] {
        let spec = json!({"target": target, "reason": "INC-42", "until": until});
        let why = refused(made(&stage, spec).await?)?;
        assert!(why.contains("until"), "{why}");
    }
    Ok(())
}

/// A lock with a wildcard in the user, group, namespace or template, such as `alice*`, which would match no object: the
/// API server denies it.
#[tokio::test]
async fn a_lock_on_a_pattern() -> Result<()> {
    let stage = Stage::set("pattern").await?;
    for target in [
        json!({"user": "alice*"}),
        json!({"user": "*"}),
        json!({"group": "dev?"}),
        json!({"namespace": "*"}),
        json!({"template": {"namespace": stage.name(), "name": "*"}}),
        json!({"template": {"namespace": "*", "name": TEMPLATE}}),
    ] {
        let spec = json!({"target": target, "reason": "INC-42"});
        let why = refused(made(&stage, spec).await?)?;
        assert!(why.contains("spec.target"), "{target}: {why}");
    }
    Ok(())
}

/// A lock on a name that looks like alice's: with a blank or invisible characters it is denied; with a letter of
/// another alphabet it locks another user, and alice is granted access.
#[tokio::test]
async fn a_lock_on_a_name_that_looks_like_another() -> Result<()> {
    let stage = Stage::set("lookalike").await?;
    for user in ["ali\u{200b}ce", "\u{202e}ecila", " alice", "alice\u{2060}"] {
        let spec = json!({"target": {"user": user}, "reason": "INC-42"});
        let why = refused(made(&stage, spec).await?)?;
        assert!(why.contains("spec.target"), "{why}");
    }
    let spec = json!({"target": {"user": "alic\u{435}"}, "reason": "INC-42"});
    made(&stage, spec).await??;
    let alice = stage.requests("alice").await?;
    alice.create(&exec_request("mine", TEMPLATE, "5m")).await?;
    alice.ready("mine").await?;
    Ok(())
}

/// A lock on two targets, which is ambiguous, or on no target: the API server denies it.
#[tokio::test]
async fn a_lock_on_two_targets_or_on_none() -> Result<()> {
    let stage = Stage::set("targets").await?;
    for target in [
        json!({"user": "nobody-at-all", "namespace": stage.name()}),
        json!({"group": "nobody-at-all", "user": "nobody-at-all"}),
        json!({}),
    ] {
        let spec = json!({"target": target, "reason": "INC-42"});
        let why = refused(made(&stage, spec).await?)?;
        assert!(why.contains("spec.target"), "{target}: {why}");
    }
    Ok(())
}

/// Creating a lock while the webhook is down: the operator denies pending requests and revokes grants; only a user in a
/// group that repairs clusters removes the lock.
#[tokio::test]
async fn a_lock_while_the_webhook_is_down() -> Result<()> {
    let mut stage = Stage::alone("down-lock").await?;
    let rules = vec![approval_rule("security", &["bob"], &[], 1)];
    stage
        .template(&approved_template("asked", rules, "10m"))
        .await?;
    let (_, client) = keeper(&stage).await?;
    let alice = stage.requests("alice").await?;
    alice
        .create(&exec_request("stands", TEMPLATE, "30m"))
        .await?;
    alice.ready("stands").await?;
    alice.create(&exec_request("waits", "asked", "30m")).await?;
    let waits = |status: &oz_api::RequestStatus| status.approval.is_some();
    alice.until("waits", "to wait for others", waits).await?;
    if let SystemGuard::Alone(system) = &mut stage.system {
        let system = system.as_mut().context("oz is stopped")?;
        system.webhook.process.kill9();
    }

    let target = json!({"namespace": stage.name()});
    let one = lock(&stage, &target)?;
    locks(&client).create(&PostParams::default(), &one).await?;
    let ended = alice.phase("stands", Phase::Revoked).await?;
    let ending = ended.ending.context("no ending")?;
    assert_eq!(ending.reason, EndReason::Locked);
    let denied = alice.phase("waits", Phase::Denied).await?;
    let line = conditions_line(&denied);
    assert!(
        line.contains(&format!("AccessLock {}", stage.name())),
        "{line}"
    );

    let unlock = locks(&client)
        .delete(stage.name(), &DeleteParams::default())
        .await;
    refused(unlock.map(drop))?;
    locks(&stage.admin)
        .delete(stage.name(), &DeleteParams::default())
        .await?;
    // The next test starts oz again.
    if let SystemGuard::Alone(system) = &mut stage.system {
        drop(system.take());
    }
    Ok(())
}

/// Locking oz's own namespace, so that the operator no longer verifies that requests are stamped: the lock is created,
/// and requests are granted as before.
#[tokio::test]
async fn a_lock_on_oz_itself() -> Result<()> {
    let stage = Stage::set("oz-lock").await?;
    made(
        &stage,
        json!({"target": {"namespace": NAMESPACE}, "reason": "INC-42"}),
    )
    .await??;
    let alice = stage.requests("alice").await?;
    alice.create(&exec_request("mine", TEMPLATE, "5m")).await?;
    alice.ready("mine").await?;
    locks(&stage.admin)
        .delete(stage.name(), &DeleteParams::default())
        .await?;
    Ok(())
}
