//! Brokers and many simulated proxies of harness runs, each with a separate connection: the memory of a broker that holds
//! their requests, and the delay until each has learned of a change. The pods have no node.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use oz_api::harness::BrokerPolicy;
use oz_api::harness::wire::RunGrants;
use oz_e2e::lending::{POLICY, SECRET, grants, set_secret};
use oz_e2e::proxies::{SimulatedProxies, proxy_tokens};
use oz_e2e::{
    Broker, Options, Scene, install, install_harness, publish_stamp_keys, publish_voucher_keys,
};
use serde_json::json;

use super::process;
use super::report::{Budget, Report};
use super::scene;
use super::stats::Values;

/// The budget for the memory of a broker that holds the requests, in MiB.
const MEMORY: f64 = 40.0;
/// The budget for the delay until a proxy has learned of a change, in milliseconds.
const LEARNED: f64 = 2000.0;

/// The size of the bench.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    runs: u32,
    /// The requests that one broker holds.
    held: usize,
    /// The proxies of two brokers.
    proxies: usize,
}

impl Size {
    pub(super) fn full(runs: u32) -> Self {
        Self {
            runs,
            held: 1_000,
            proxies: 500,
        }
    }

    pub(super) fn quick() -> Self {
        Self {
            runs: 1,
            held: 100,
            proxies: 50,
        }
    }
}

pub(super) async fn measure(options: &super::Options, report: &mut Report) -> Result<()> {
    let size = options.sized(Size::quick, Size::full);
    let (_owner, cluster) = scene::cluster().await?;
    install(cluster).await?;
    install_harness(cluster)?;
    let admin = cluster.client("admin").await?;
    publish_voucher_keys(&admin).await?;
    publish_stamp_keys(&admin).await?;
    let scene = Scene::empty(cluster, "polls").await?;
    scene.lend("the-real-key").await?;
    let tokens = proxy_tokens(&scene, size.held.max(size.proxies)).await?;
    for _ in 0..size.runs {
        memory(&scene, &tokens[..size.held], report).await?;
        changes(&scene, &tokens[..size.proxies], report).await?;
    }
    Ok(())
}

/// Starts a broker that has no requests yet.
async fn broker(scene: &Scene, number: usize) -> Result<Broker> {
    let replica = Options::replica(&format!("oz-broker-{number}"));
    Broker::start(scene.cluster, &replica).await
}

/// Measures the memory of a broker that holds a request of each proxy.
async fn memory(scene: &Scene, tokens: &[String], report: &mut Report) -> Result<()> {
    let broker = broker(scene, 0).await?;
    let pid = broker.process.pid();
    let alone = process::resident(pid)?;
    let proxies = SimulatedProxies::start(scene, tokens, &[&broker]).await?;
    broker.holds(tokens.len()).await?;
    let what = "memory of a broker without requests";
    report.add(what, "MiB", Budget::None, alone);
    let what = format!("memory of a broker with {} held requests", tokens.len());
    let held = process::resident(pid)?;
    report.add(&what, "MiB", Budget::AtMost(MEMORY), held);
    // Each fetches its credential at once, which costs a record.
    proxies.fetch("the-real-key").await?;
    let what = "  after each proxy fetched its credential";
    let fetched = process::resident(pid)?;
    report.add(what, "MiB", Budget::None, fetched);
    Ok(())
}

/// Measures the delay until every proxy of two brokers has learned of a change.
async fn changes(scene: &Scene, tokens: &[String], report: &mut Report) -> Result<()> {
    let (one, two) = (broker(scene, 1).await?, broker(scene, 2).await?);
    let proxies = SimulatedProxies::start(scene, tokens, &[&one, &two]).await?;
    let mut add = |what: &str, delays: Vec<Duration>| {
        let delays: Values = delays.into_iter().collect();
        let what = format!("{what}, until {} proxies know", tokens.len());
        report.add(&format!("{what}, p50"), "ms", Budget::None, delays.median());
        let p99 = delays.percentile(99);
        report.add(&format!("{what}, p99"), "ms", Budget::AtMost(LEARNED), p99);
    };
    let has_value = || proxies.0.iter().any(|it| it.value().is_some());
    proxies.fetch("the-real-key").await?;
    let before = proxies.versions();
    let began = Instant::now();
    set_secret(scene, SECRET, "the-next-key").await?;
    let is_next = |grants: Option<&RunGrants>| {
        let credential = grants.and_then(|it| it.credentials.first());
        credential
            .is_some_and(|it| it.version.starts_with("sha256:") && !before.contains(&it.version))
    };
    let what = "Secret replaced";
    add(what, proxies.learn(what, began, is_next).await?);

    let narrowed = json!({"egress": [{"host": "other.example.com", "ports": [443]}]});
    let began = Instant::now();
    scene.lending_policy(POLICY, narrowed, true).await?;
    let is_narrow = |grants: Option<&RunGrants>| {
        grants.is_some_and(|it| it.hosts.len() == 1 && it.credentials.is_empty())
    };
    let what = "policy narrowed";
    add(what, proxies.learn(what, began, is_narrow).await?);
    ensure!(!has_value(), "a proxy keeps a value");

    let began = Instant::now();
    let policies = scene.api::<BrokerPolicy>();
    policies.delete(POLICY, &DeleteParams::default()).await?;
    let is_empty = |grants: Option<&RunGrants>| grants.is_some_and(|it| it.hosts.is_empty());
    let what = "policy deleted";
    add(what, proxies.learn(what, began, is_empty).await?);

    // For the next run.
    set_secret(scene, SECRET, "the-real-key").await?;
    scene.lending_policy(POLICY, grants(), true).await
}
