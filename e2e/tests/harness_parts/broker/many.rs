//! Many proxies at the same brokers: each learns every change, and none keeps a credential. `OZ_LONG=1`: 1,000 and 500
//! proxies, otherwise a tenth. `cargo xtask bench harness-polls` measures delays and memory.

use std::time::Instant;

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, ListParams};
use oz_api::harness::wire::RunGrants;
use oz_api::harness::{BrokerPolicy, HarnessRun};
use oz_e2e::lending::{POLICY, SECRET};
use oz_e2e::proxies::{SimulatedProxies, proxy_tokens};
use oz_e2e::{Broker, Options};
use oz_testkit::scaled;
use serde_json::json;

use super::{HOST, grants, lending_stage, set_secret};
use crate::cluster;

fn hosts(grants: Option<&RunGrants>) -> Vec<&str> {
    let hosts = grants.map(|grants| grants.hosts.iter());
    hosts
        .into_iter()
        .flatten()
        .map(|it| it.host.as_str())
        .collect()
}

/// Returns the version of the only credential; none if it is not granted, or its Secret was not read.
fn version(grants: Option<&RunGrants>) -> Option<&str> {
    let version = grants?.credentials.first()?.version.as_str();
    version.starts_with("sha256:").then_some(version)
}

#[tokio::test]
async fn broker_holds_requests_of_a_thousand_proxies() -> Result<()> {
    let (scene, _) = lending_stage("thousand").await?;
    let tokens = proxy_tokens(&scene, scaled(100, 1_000)).await?;
    let broker = Broker::start(cluster().await?, &Options::replica("oz-broker-8")).await?;
    let proxies = SimulatedProxies::start(&scene, &tokens, &[&broker]).await?;
    broker.holds(tokens.len()).await?;
    proxies.fetch("the-real-key").await
}

#[tokio::test]
async fn all_proxies_of_two_brokers_learn_each_change_and_keep_no_credential() -> Result<()> {
    let (scene, _) = lending_stage("many").await?;
    let tokens = proxy_tokens(&scene, scaled(50, 500)).await?;
    let brokers = [
        Broker::start(cluster().await?, &Options::replica("oz-broker-9")).await?,
        Broker::start(cluster().await?, &Options::replica("oz-broker-10")).await?,
    ];
    let [one, two] = &brokers;
    let proxies = SimulatedProxies::start(&scene, &tokens, &[one, two]).await?;
    let learn = async |what: &str, wanted: &dyn Fn(Option<&RunGrants>) -> bool| {
        proxies.learn(what, Instant::now(), wanted).await.map(drop)
    };
    let no_value = || -> Result<()> {
        let keeps = proxies.0.iter().filter(|it| it.value().is_some()).count();
        ensure!(keeps == 0, "{keeps} proxies keep a value");
        Ok(())
    };
    learn("first grants", &|it| version(it).is_some()).await?;
    proxies.fetch("the-real-key").await?;

    let before = proxies.versions();
    set_secret(&scene, SECRET, "the-next-key").await?;
    let is_new = |it: Option<&RunGrants>| version(it).is_some_and(|it| !before.contains(it));
    learn("Secret replaced", &is_new).await?;
    no_value()?;
    proxies.fetch("the-next-key").await?;

    let narrowed = json!({"egress": [{"host": "other.example.com", "ports": [443]}]});
    scene.lending_policy(POLICY, narrowed, true).await?;
    let is_narrow =
        |it: Option<&RunGrants>| hosts(it) == ["other.example.com"] && version(it).is_none();
    learn("policy narrowed", &is_narrow).await?;
    no_value()?;
    proxies.are_refused("CredentialNotGranted").await?;

    scene.lending_policy(POLICY, grants(), true).await?;
    learn("policy widened", &|it| {
        hosts(it) == [HOST] && version(it).is_some()
    })
    .await?;
    proxies.fetch("the-next-key").await?;

    let policies = scene.api::<BrokerPolicy>();
    policies.delete(POLICY, &DeleteParams::default()).await?;
    learn("policy deleted", &|it| it.is_some() && hosts(it).is_empty()).await?;
    no_value()?;
    proxies.are_refused("CredentialNotGranted").await?;

    let runs = scene.api::<HarnessRun>();
    runs.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    learn("runs deleted", &|it| it.is_none()).await?;
    for broker in &brokers {
        broker.holds(0).await?;
    }
    Ok(())
}
