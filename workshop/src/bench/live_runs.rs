//! The memory of a broker while many runs are live: each has a pod of which the broker has verified the
//! token, and which has sent a report.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use oz_api::names;
use oz_e2e::{Broker, BrokerClient, Options, Scene};
use serde_json::json;

use super::process;
use super::report::{Budget, Report};

/// The audience of tokens for the broker.
const AUDIENCE: &str = names::BROKER;
/// The number of pods that connect at once.
const AT_ONCE: usize = 20;
/// 20 MB, in units of 1024 × 1024 bytes.
const MOST: f64 = 20e6 / (1024.0 * 1024.0);

/// Lets the pods of a scene with this prefix request their prompts from a broker that has just started, and
/// report to it; reports its memory afterwards.
pub(super) async fn memory_of_the_broker(
    scene: &Scene,
    prefix: &str,
    report: &mut Report,
) -> Result<()> {
    let broker = Broker::start(scene.cluster, &Options::replica("oz-broker-0")).await?;
    let client = broker.connect(&scene.admin).await?;
    let pods = scene.api::<Pod>();
    let mut pods = pods.list(&ListParams::default()).await?.items;
    pods.retain(|pod| pod.name_any().starts_with(prefix));
    for some in pods.chunks(AT_ONCE) {
        let asking = some.iter().map(|pod| ask(scene, &client, pod));
        try_join_all(asking).await?;
    }
    let memory = process::resident(broker.process.pid())?;
    let what = format!("memory of the broker with {} live runs", pods.len());
    report.add(&what, "MiB", Budget::AtMost(MOST), memory);
    Ok(())
}

async fn ask(scene: &Scene, broker: &BrokerClient, pod: &Pod) -> Result<()> {
    let token = scene.token(AUDIENCE, Some(pod)).await?;
    let answer = broker.prompt(&token).await?;
    ensure!(
        answer.prompt().is_some(),
        "the broker does not answer {}: {answer:?}",
        pod.name_any()
    );
    let event = json!({
        "schemaVersion": "1", "ts": "2026-01-01T00:00:00Z", "type": "ToolUse", "summary": "wrote main.rs",
        "fields": {"path": "main.rs"},
    });
    let told = broker.report(&token, &json!([event])).await;
    let told = told.context("failed to report")?;
    ensure!(told.status == 204, "the broker takes no report: {told:?}");
    Ok(())
}
