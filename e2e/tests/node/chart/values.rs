//! Values of the chart that an upgrade changes: each component acts by the new value afterwards.

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::PostParams;
use oz_api::Phase;
use oz_e2e::{
    GATED, Scene, Session, TEMPLATE, apply_as, chart, exec_request, gate_template, pod_request,
    pod_template,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::json;

use super::{WAIT, with_helm};
use crate::gate::said;

/// A workload with pods that never become ready.
const BROKEN: &str = "broken";

/// Changes one value of operator, webhook, gate and broker. That the broker acts by its value is shown by
/// [`crate::harness::runs`]: the agents of its runs trust the upstream only by `upstream_authority`.
pub(super) async fn act_after_upgrade(
    cluster: &'static Cluster,
    upstream_authority: &str,
) -> Result<()> {
    // The limit of active requests counts those of one namespace.
    let scene = &Scene::set(cluster, "values").await?;
    scene.template(&gate_template()).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "10m")).await?;
    let pod = granted.pod();
    let shell = ["exec", "-i", &pod, "--", "sh", "-c", "echo here; exec cat"];
    let through_gate = || scene.through_gate("alice", "mine", &shell);
    let two = async || {
        let first = Session::open(through_gate())?;
        Session::open(through_gate()).map(|second| (first, second))
    };
    // The default values permit all of this.
    eventually("two sessions", CONDITION_TIMEOUT, async || {
        Ok(two().await.ok())
    })
    .await?;

    let chart = chart();
    let trusted = format!("--set-file=harness.upstreamCA={upstream_authority}");
    let values =
        "--set=operator.podReadyTimeout=30s,webhook.limits.active=5,gate.maxSessionsPerUser=1";
    let upgrade = ["upgrade", "oz", &chart, "--reuse-values", values, &trusted];
    with_helm(cluster, &[&upgrade[..], &WAIT].concat())?;

    // The operator: it waited for five minutes before. The pods of runs, which start later, have as long.
    broken_workload(scene).await?;
    let pods = scene.pod_requests("alice").await?;
    pods.create(&pod_request("unready", BROKEN, "10m")).await?;
    pods.phase("unready", Phase::Failed).await?;

    // The webhook: it admitted twenty before.
    let more = ["second", "third", "fourth", "fifth"];
    for name in more {
        alice.granted(&exec_request(name, TEMPLATE, "10m")).await?;
    }
    match alice.create(&exec_request("sixth", TEMPLATE, "10m")).await {
        Err(kube::Error::Api(status)) => {
            ensure!(status.message.contains("webhook.limits.active"), "{status}");
        }
        other => bail!("the sixth request: {other:?}"),
    }
    for name in more {
        alice.api().delete(name, &Default::default()).await?;
    }

    // The gate, of which one replica runs.
    let _first = eventually("a session", CONDITION_TIMEOUT, async || {
        Ok(Session::open(through_gate()).ok())
    })
    .await?;
    let second = scene
        .through_gate("alice", "mine", &["exec", &pod, "--", "true"])
        .output()?;
    let refusal = said(&second);
    ensure!(refusal.contains("gate.maxSessionsPerUser"), "{refusal}");
    alice.api().delete("mine", &Default::default()).await?;
    Ok(())
}

/// Creates the workload [`BROKEN`] with an image that does not exist, and a template of the same name for its pods.
async fn broken_workload(scene: &Scene) -> Result<()> {
    let labels = json!({"app": BROKEN});
    let deployment = json!({
        "metadata": {"name": BROKEN},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{
                    "name": "app", "image": "localhost/none:1", "imagePullPolicy": "Never",
                }]},
            },
        },
    });
    apply_as(&scene.api::<Deployment>(), deployment).await?;
    let template = pod_template(BROKEN, BROKEN, &json!({}))?;
    scene
        .api()
        .create(&PostParams::default(), &template)
        .await?;
    Ok(())
}
