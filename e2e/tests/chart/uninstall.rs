//! What the chart's pre-delete hook runs, under the very rights that the hook has: all access ends,
//! with or without an operator, and nothing of oz is in anybody's way.

use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_core::api::ExecAccessRequest;
use oz_core::transient::FINALIZER;
use oz_e2e::{NAMESPACE, Scene, System, TEMPLATE, exec_request, left, records_of, run};
use oz_testkit::{Cluster, cargo_binary};
use serde_json::{Value, json};

use crate::{TURN, kubectl, name_of, rendered};

const USER: &str = "system:serviceaccount:oz-system:oz-uninstall";

/// Gives the hook's service account what the chart gives it.
fn permit(cluster: &Cluster) -> Result<()> {
    let objects: Vec<Value> = rendered(&[])?
        .into_iter()
        .filter(|object| {
            let name = name_of(object);
            name.ends_with(" oz-uninstall") && !name.starts_with("Job")
        })
        .collect();
    assert_eq!(objects.len(), 5);
    kubectl(cluster, &["apply"], &objects)
}

fn uninstall(cluster: &Cluster, patience: &str) -> Result<Command> {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:oz-system"];
    let mut command = Command::new(cargo_binary("oz-operator")?);
    command
        .arg("--kubeconfig")
        .arg(cluster.issue_kubeconfig(USER, &groups)?)
        .args(["--namespace=oz-system", "uninstall"])
        .arg(format!("--patience={patience}"));
    Ok(command)
}

async fn assert_nothing_left_but(cluster: &Cluster, spared: &[&str]) -> Result<()> {
    let mut left = left(&cluster.client("admin").await?).await?;
    left.retain(|object| !spared.contains(&object.as_str()));
    assert!(left.is_empty(), "{left:?}");
    let forbidden = cluster.audit().entries()?.by_user(USER);
    let forbidden = forbidden.filter(|entry| entry.code == 403);
    assert!(forbidden.is_empty(), "{forbidden:?}");
    Ok(())
}

#[tokio::test]
async fn the_operator_ends_all_access_before_the_webhooks_go() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    let mut system = System::start(cluster).await?;
    permit(cluster)?;
    let scene = Scene::set(cluster, "leaving").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("debug", TEMPLATE, "30m"))
        .await?;
    // Its Deployment does not exist here: the webhook is this machine's process.
    system.webhook.process.kill9();

    run(uninstall(cluster, "60s")?)?;

    // No Deployment stops the operator here: it goes on, and may make its key anew.
    assert_nothing_left_but(cluster, &["Secret oz-system oz-signing-key"]).await?;
    let ended = records_of(&system.operator.process, scene.name(), "debug")?;
    let last = ended.last().context("no record")?;
    assert_eq!(format!("{last:?}"), "AccessRevoked", "{ended:?}");
    assert!(alice.api().get_opt("debug").await?.is_none());
    Ok(())
}

/// A pod of a webhook that was evicted: it ended, and stays.
async fn evicted(cluster: &Cluster) -> Result<(Api<Pod>, Pod)> {
    let pods: Api<Pod> = Api::namespaced(cluster.client("admin").await?, NAMESPACE);
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "evicted", "labels": {"app.kubernetes.io/component": "webhook"}},
        "spec": {
            "schedulerName": "nobody",
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "webhook", "image": "webhook",
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    }))?;
    let pod = pods.create(&PostParams::default(), &pod).await?;
    let failed = Patch::Merge(json!({"status": {"phase": "Failed", "reason": "Evicted"}}));
    pods.patch_status("evicted", &PatchParams::default(), &failed)
        .await?;
    Ok((pods, pod))
}

#[tokio::test]
async fn without_an_operator_access_ends_all_the_same() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    let mut system = System::start(cluster).await?;
    permit(cluster)?;
    let scene = Scene::set(cluster, "deserted").await?;
    let alice = scene.requests("alice").await?;
    // Whoever asks can keep their request by finalizers, ours among them, and holds up nothing by it.
    let mut request = exec_request("debug", TEMPLATE, "30m");
    request.metadata.finalizers = Some(vec![FINALIZER.to_owned(), "example.com/other".to_owned()]);
    alice.granted(&request).await?;
    system.operator.process.kill9();
    system.webhook.process.kill9();
    let (pods, evicted) = evicted(cluster).await?;

    run(uninstall(cluster, "3s")?)?;

    pods.delete(&evicted.name_any(), &DeleteParams::default())
        .await?;
    let kept = format!("ExecAccessRequest {} debug", scene.name());
    assert_nothing_left_but(cluster, &[&kept]).await?;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    scene
        .api::<ExecAccessRequest>()
        .patch("debug", &PatchParams::default(), &free)
        .await?;
    Ok(())
}
