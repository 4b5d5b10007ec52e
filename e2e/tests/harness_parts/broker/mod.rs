//! The broker, as the pods of runs see it, and those who are none.

mod answers;
mod reports;
mod strangers;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use oz_api::harness::HarnessRun;
use oz_api::names;
use oz_e2e::{Broker, BrokerClient, Options, Scene, identity, publish_voucher_keys};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::cluster;

/// What tokens for the broker are for.
const AUDIENCE: &str = "oz-broker";
/// The broker's user name.
const USER: &str = "system:serviceaccount:oz-system:oz-broker";

static BROKER: OnceCell<Broker> = OnceCell::const_new();

/// The broker of this process, started by whoever comes first.
async fn broker() -> Result<&'static Broker> {
    let started = BROKER.get_or_try_init(|| async {
        let (cluster, replica) = (cluster().await?, Options::replica("oz-broker-0"));
        publish_voucher_keys(&cluster.client("admin").await?).await?;
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
