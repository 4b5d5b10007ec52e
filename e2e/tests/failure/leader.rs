//! Two operators: one writes, the other takes over.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::RoleBinding;
use oz_api::Phase;
use oz_e2e::{Operator, Options, Scene, System, TEMPLATE, alerts, exec_request};
use oz_testkit::eventually;

use crate::alone;

#[tokio::test]
async fn a_second_operator_takes_over_what_the_first_one_granted() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let elected = |name| Options::replica(name).flag("--leader-elect");
    let mut system = System::start_with(cluster, &elected("oz-a")).await?;
    let scene = Scene::set(cluster, "leader").await?;
    let alice = scene.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("handed", TEMPLATE, "20s"))
        .await?;
    let until = asked.status().expires_at.context("no end")?;
    let second = Operator::spawn(cluster, &elected("oz-b"))?;
    eventually(
        "the second operator to be up",
        Duration::from_secs(60),
        async || Ok(second.readiness().await.ok().map(drop)),
    )
    .await?;
    // This grant expires before another operator leads: the waiting operator counts it.
    let brief = alice
        .granted(&exec_request("brief", TEMPLATE, "3s"))
        .await?;
    system.operator.process.kill9();
    let past_expiry = async |is: bool| {
        let what = format!("grants past their expiry: {is}");
        eventually(&what, Duration::from_secs(60), async || {
            let fires = alerts::fires(
                "access.yaml",
                "OzGrantsPastExpiry",
                &second.metrics().await?,
            )?;
            Ok((fires == is).then_some(()))
        })
        .await
    };
    past_expiry(true).await?;
    let (name, within) = (asked.object_name(), Duration::from_secs(90));
    scene
        .gone::<RoleBinding>(&brief.object_name(), within)
        .await?;
    scene.gone::<RoleBinding>(&name, within).await?;
    let lag = Timestamp::now().duration_since(until);
    assert!(!lag.is_negative());
    // The lease expires after 15 s at the latest; the grant expired later than that.
    assert!(lag < SignedDuration::from_secs(15), "{lag:#}");
    alice.phase("handed", Phase::Expired).await?;
    past_expiry(false).await?;
    Ok(())
}

#[tokio::test]
async fn a_restarted_operator_takes_its_own_lease_back_at_once() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let elected = Options::replica("oz-a").flag("--leader-elect");
    let mut system = System::start_with(cluster, &elected).await?;
    let scene = Scene::set(cluster, "back").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("first", TEMPLATE, "5m"))
        .await?;
    system.operator.process.kill9();
    system.operator = Operator::start(cluster, &elected).await?;
    let began = Timestamp::now();
    alice
        .granted(&exec_request("second", TEMPLATE, "5m"))
        .await?;
    // An operator that waited would wait for as long as the lease lasts.
    let took = Timestamp::now().duration_since(began);
    assert!(
        took < SignedDuration::from_secs(15),
        "waited {took:#} for its own lease"
    );
    Ok(())
}
