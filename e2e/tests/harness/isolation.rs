//! NetworkPolicies of other users in addition to those of runs: their rules add up.

use anyhow::{Context, Result};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, PostParams};
use oz_api::conditions;
use oz_e2e::allow_dns;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use serde_json::json;

use crate::support::{World, message, reason};

#[tokio::test]
async fn run_that_another_policy_opens_reports_it_until_that_is_gone() -> Result<()> {
    let world = World::new("opened").await?;
    world.running("hello", json!({})).await?;
    let run = world
        .until("hello", "is confined", |run| {
            reason(run, "Confined") == Some("Success")
        })
        .await?;
    let status = run.status.context("it has no status")?;
    assert_eq!(status.network_policy_enforced, Some(true));

    let policies = world.api::<NetworkPolicy>();
    let allow_dns = allow_dns()?;
    policies.create(&PostParams::default(), &allow_dns).await?;
    let run = world
        .until("hello", "is not confined", |run| {
            reason(run, "Confined") == Some("OtherPolicies")
        })
        .await?;
    let why = message(&run, "Confined");
    assert!(why.contains("allow-dns"), "{why}");
    let status = run.status.context("it has no status")?;
    assert!(!conditions::is_true(&status.conditions, "Confined"));
    assert_eq!(status.network_policy_enforced, Some(false));
    let record = eventually("the record", CONDITION_TIMEOUT, async || {
        let mut records = world.records("hello").await?.into_iter();
        Ok(records.find(|it| it.action == Action::IsolationLost))
    })
    .await?;
    assert_eq!(record.details["networkPolicies"], "allow-dns");

    policies
        .delete("allow-dns", &DeleteParams::default())
        .await?;
    world
        .until("hello", "is confined again", |run| {
            reason(run, "Confined") == Some("Success")
        })
        .await?;
    Ok(())
}
