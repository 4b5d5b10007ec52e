//! Actions that the operator does not carry out although the policy requires them.

use anyhow::{Result, ensure};
use kube::api::ListParams;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::json;

use super::world::{NONE, ONE, World};
use crate::support::*;

const ACCOUNT: &str = "system:serviceaccount:oz-system:oz-composites";

#[tokio::test]
async fn a_dry_run_says_what_it_would_do_and_writes_nothing() -> Result<()> {
    oz().await?;
    let cluster = Cluster::shared().await?;
    let mark = cluster.audit().mark()?;
    let world = World::set_rego("rego-dry", |rego| rego["spec"]["mode"] = json!("DryRun")).await?;
    world.fleet("one", &json!({"value": "x"})).await?;
    let namespace = world.fixture.name();
    let parent = format!("{namespace}/one");
    let create = [format!("ConfigMap {namespace}/one")];
    world
        .status("what would be created", |status| {
            let told = status.pending.first();
            told.is_some_and(|told| told.parent == parent && told.create == create)
        })
        .await?;
    let entries = cluster.audit().since(mark)?.in_namespace(namespace);
    let writes = entries.by_user(ACCOUNT).writes().counts();
    ensure!(writes.is_empty(), "{writes:?}");
    ensure!(
        world.config_maps().get_opt("one").await?.is_none(),
        "there is no child"
    );

    world.patch(json!({"spec": {"mode": "Enforce"}})).await?;
    world.child("one").await?;
    // The log does have this account's writes.
    eventually("its writes in the log", CONDITION_TIMEOUT, async || {
        let entries = cluster.audit().since(mark)?.in_namespace(namespace);
        let writes = entries.by_user(ACCOUNT).writes().counts();
        Ok((!writes.is_empty()).then_some(()))
    })
    .await?;
    world
        .status("nothing pending", |status| status.pending.is_empty())
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_policy_that_would_delete_too_much_waits_until_its_digest_is_accepted() -> Result<()> {
    oz().await?;
    let world = World::set_rego("rego-guard", |rego| {
        rego["spec"]["limits"] = json!({"deletions": 2});
    })
    .await?;
    let names = ["a", "b", "c"];
    for name in names {
        world.fleet(name, &json!({"value": "x"})).await?;
        world.child(name).await?;
    }
    world.policy(NONE).await?;
    let message = world
        .condition_because("Accepted", "False", "DeletionLimitExceeded")
        .await?;
    ensure!(
        message.contains("would delete 3 children; the maximum is 2"),
        "{message}"
    );
    let children = world.config_maps().list(&ListParams::default()).await?;
    let left = |name: &str| {
        children
            .items
            .iter()
            .any(|map| map.metadata.name.as_deref() == Some(name))
    };
    ensure!(names.iter().all(|name| left(name)), "all are left");
    let none = world
        .status("what would be deleted", |status| status.pending.len() == 3)
        .await?;

    // The operator still changes and creates objects.
    let other = ONE.replace(
        "input.parent.metadata.name",
        "concat(\"-\", [input.parent.metadata.name, \"new\"])",
    );
    world.policy(&other).await?;
    world.child("a-new").await?;
    let status = world
        .status("what the other would delete", |status| {
            let deletes = status.pending.iter().map(|told| told.delete.len());
            status.policy_digest != none.policy_digest && deletes.eq([1, 1, 1])
        })
        .await?;
    ensure!(
        world.config_maps().get_opt("a").await?.is_some(),
        "nothing is deleted"
    );

    let digest = status.policy_digest.clone().unwrap_or_default();
    ensure!(
        status.accepted_digest.as_ref() != Some(&digest),
        "{status:?}"
    );
    let accept = json!({"oz.wizardofoz.co/accept-deletions": digest});
    world
        .patch(json!({"metadata": {"annotations": accept}}))
        .await?;
    for name in names {
        world.gone(name).await?;
        world.child(&format!("{name}-new")).await?;
    }
    world
        .condition_because("Accepted", "True", "Accepted")
        .await?;
    let status = world
        .status("nothing pending", |status| status.pending.is_empty())
        .await?;
    assert_eq!(status.accepted_digest, Some(digest));
    Ok(())
}
