//! Clocks that are wrong from the start, or set while oz runs. The API server's clock decides.

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use oz_api::Phase;
use oz_e2e::{
    Operator, Options, Scene, System, TEMPLATE, Webhook, clocks_can_be_shifted, exec_request,
    install,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually, libfaketime};

use crate::alone;

/// Grants for some seconds, and checks that access lasts as long as was agreed, ending at most `early` before its time.
async fn lasts_as_agreed(
    scene: &Scene,
    name: &str,
    early: SignedDuration,
    disturb: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let alice = scene.requests("alice").await?;
    let asked = alice.granted(&exec_request(name, TEMPLATE, "6s")).await?;
    let created = asked
        .request
        .creation_timestamp()
        .context("no creation time")?
        .0;
    let until = asked.status().expires_at.context("no end")?;
    assert_eq!(until, created + SignedDuration::from_secs(6));
    disturb().await?;
    let (binding, within) = (asked.object_name(), CONDITION_TIMEOUT);
    scene.gone::<RoleBinding>(&binding, within).await?;
    // This machine runs the API server: its clock is the true one.
    let late = Timestamp::now().duration_since(until);
    assert!(late >= -early, "{name} ended {late:#} before its time");
    assert!(
        late < SignedDuration::from_secs(10),
        "{name} ended {late:#} late"
    );
    alice.phase(name, Phase::Expired).await?;
    Ok(())
}

async fn with_offset(cluster: &'static Cluster, offset: &str, name: &str) -> Result<()> {
    install(cluster).await?;
    let shifted = Options::default().clock(offset);
    let webhook = Webhook::start(cluster, &shifted).await?;
    let operator = Operator::start(cluster, &shifted).await?;
    let scene = Scene::set(cluster, name).await?;
    // The API server states its time in whole seconds.
    lasts_as_agreed(&scene, name, SignedDuration::from_secs(1), async || Ok(())).await?;
    let metrics = operator.metrics().await?;
    let skew = metrics
        .lines()
        .find_map(|line| line.strip_prefix("oz_clock_skew_seconds "))
        .context("no metric of the skew")?
        .trim()
        .parse::<f64>()?;
    assert!(skew.abs() > 3500.0, "a skew of {skew} s is not an hour");
    let direction = if skew > 0.0 { "ahead of" } else { "behind" };
    let (code, said) = operator.readiness().await?;
    assert!(
        code == 200 && said.contains(direction) && said.contains(" the API server's"),
        "{said}"
    );
    // Both processes report that, each about its own pod.
    eventually("the alarms", CONDITION_TIMEOUT, async || {
        let skewed = webhook.metrics().await?.lines().any(|line| {
            let skew = line.strip_prefix("oz_clock_skew_seconds ");
            skew.and_then(|skew| skew.trim().parse::<f64>().ok())
                .is_some_and(|skew| skew.abs() > 3500.0)
        });
        let events: Api<Event> = Api::namespaced(scene.admin.clone(), oz_e2e::NAMESPACE);
        let events = events.list(&ListParams::default()).await?;
        let told = |who: &str| {
            events.iter().any(|event| {
                event.reason.as_deref() == Some("ClockSkewed")
                    && event.note.as_ref().is_some_and(|note| note.contains(who))
            })
        };
        Ok((skewed && told("oz-operator oz-0") && told("oz-webhook oz-0")).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_clock_an_hour_ahead_cuts_nothing_short() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    if clocks_can_be_shifted()? {
        with_offset(cluster, "+1h", "ahead").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_clock_an_hour_behind_extends_nothing() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    if clocks_can_be_shifted()? {
        with_offset(cluster, "-1h", "behind").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_clock_that_is_set_while_access_lasts_changes_nothing() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let (true, Some(library)) = (clocks_can_be_shifted()?, libfaketime()) else {
        return Ok(());
    };
    install(cluster).await?;
    let offset = cluster.state_dir().join("clock-of-the-operator");
    std::fs::write(&offset, "+0")?;
    let options = Options::default()
        .environment("LD_PRELOAD", &library.to_string_lossy())
        .environment("FAKETIME_TIMESTAMP_FILE", &offset.to_string_lossy())
        .environment("FAKETIME_NO_CACHE", "1")
        .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let _webhook = Webhook::start(cluster, &Options::default()).await?;
    let _operator = Operator::start(cluster, &options).await?;
    let scene = Scene::set(cluster, "stepped").await?;
    for (name, step) in [("forward", "+1h"), ("backward", "-1h")] {
        std::fs::write(&offset, "+0")?;
        lasts_as_agreed(&scene, name, SignedDuration::ZERO, async || {
            Ok(std::fs::write(&offset, step)?)
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn expiry_keeps_fraction_of_requested_duration() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "fraction").await?;
    let alice = scene.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("fraction", TEMPLATE, "4.5s"))
        .await?;
    let created = asked
        .request
        .creation_timestamp()
        .context("no creation time")?
        .0;
    let until = asked.status().expires_at.context("no end")?;
    assert_eq!(until, created + SignedDuration::from_millis(4500));
    alice.phase("fraction", Phase::Expired).await?;
    Ok(())
}
