//! The broker, as the pods of runs see it, and those who are none.

mod answers;
mod destinations;
mod lending;
mod many;
mod polls;
mod refusals;
mod reports;
mod strangers;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use oz_api::harness::HarnessRun;
use oz_api::names;
use oz_e2e::lending::{HOST, credential, grants, permit_reads, set_secret};
use oz_e2e::{
    Broker, BrokerClient, Options, Scene, identity, publish_stamp_keys, publish_voucher_keys,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::cluster;

/// The audience of tokens for the broker.
const AUDIENCE: &str = "oz-broker";
/// The audience of the tokens of proxies.
const PROXY: &str = "oz-broker-proxy";
/// The broker's user name.
const USER: &str = "system:serviceaccount:oz-system:oz-broker";

static BROKER: OnceCell<Broker> = OnceCell::const_new();

/// Returns the broker of this process, which the first caller starts.
async fn broker() -> Result<&'static Broker> {
    let started = BROKER.get_or_try_init(|| async {
        let (cluster, replica) = (cluster().await?, Options::replica("oz-broker-0"));
        let admin = cluster.client("admin").await?;
        publish_voucher_keys(&admin).await?;
        publish_stamp_keys(&admin).await?;
        Broker::start(cluster, &replica).await
    });
    started.await
}

/// A namespace, and a way to the broker.
async fn stage(prefix: &str) -> Result<(Scene, BrokerClient)> {
    let broker = broker().await?;
    let scene = Scene::empty(cluster().await?, prefix).await?;
    let client = broker.connect(&scene.admin).await?;
    Ok((scene, client))
}

/// The runs, by the one who may write their statuses.
async fn as_operator(scene: &Scene) -> Result<Api<HarnessRun>> {
    let (user, _) = identity(scene.cluster, names::OPERATOR)?;
    let client = scene.cluster.client(&user).await?;
    Ok(Api::namespaced(client, scene.name()))
}

/// A run with its pod and the pod's token.
async fn started(scene: &Scene, name: &str, prompt: &str) -> Result<(HarnessRun, Pod, String)> {
    let run = scene.harness_run(name, prompt).await?;
    let pod = scene.pod_of_job(name, &run).await?;
    let token = scene.token(AUDIENCE, Some(&pod)).await?;
    Ok((run, pod, token))
}

fn event(type_: &str, summary: &str) -> Value {
    json!({
        "schemaVersion": "1", "ts": "2026-01-01T00:00:00Z", "type": type_, "summary": summary,
        "fields": {"path": "main.rs"},
    })
}

/// The summaries of the events in a run's status.
async fn summaries(scene: &Scene, run: &HarnessRun) -> Result<Vec<String>> {
    let run = scene.api::<HarnessRun>().get(&run.name_any()).await?;
    let events = run.status.map(|status| status.recent_events);
    let events = events.unwrap_or_default().into_iter();
    Ok(events.map(|event| event.summary).collect())
}

/// A run with its pod and the token of the pod's proxy.
async fn proxied(scene: &Scene, name: &str) -> Result<(HarnessRun, Pod, String)> {
    let run = scene.harness_run(name, "x").await?;
    let pod = scene.pod_of_job(name, &run).await?;
    let token = scene.token(PROXY, Some(&pod)).await?;
    Ok((run, pod, token))
}

/// A scene with the policy of [`grants`] and a Secret that the broker may read.
async fn lending_stage(prefix: &str) -> Result<(Scene, BrokerClient)> {
    let (scene, broker) = stage(prefix).await?;
    scene.lend("the-real-key").await?;
    Ok((scene, broker))
}

/// Waits until the broker lends the credential KEY, and returns its value: the watches of broker and API server follow
/// the writes of the test.
async fn lent(broker: &BrokerClient, token: &str) -> Result<String> {
    eventually("the credential", CONDITION_TIMEOUT, async || {
        let answer = broker.credential(token, "KEY", HOST).await?;
        let value = answer.body["value"].as_str().map(ToOwned::to_owned);
        Ok(value.filter(|_| answer.status == 200))
    })
    .await
}

/// Waits until the broker refuses the credential KEY with this code.
async fn refused_with(broker: &BrokerClient, token: &str, code: &str) -> Result<()> {
    eventually(&format!("refusal {code}"), CONDITION_TIMEOUT, async || {
        let answer = broker.credential(token, "KEY", HOST).await?;
        Ok((answer.status != 200 && answer.code() == code).then_some(()))
    })
    .await
}
