//! What the chart's pre-delete hook runs, under the very rights that the hook has: all access ends,
//! with or without an operator, and nothing of oz is in anybody's way.

use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::ListParams;
use oz_e2e::{Scene, System, TEMPLATE, exec_request, records_of, run};
use oz_testkit::{Cluster, cargo_binary};
use serde_json::Value;

use crate::{TURN, name_of, rendered};

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
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("rights.json");
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&file, serde_json::to_vec(&list)?)?;
    let mut apply = cluster.kubectl("admin");
    apply.args(["apply", "-f"]).arg(file);
    run(apply).map(drop)
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

async fn assert_nothing_left(cluster: &Cluster, scene: &Scene) -> Result<()> {
    let client = cluster.client("admin").await?;
    let grants = ListParams::default().labels("oz.wizardofoz.co/owner-uid");
    let roles = scene.api::<Role>().list(&grants).await?.items;
    assert!(roles.is_empty(), "{roles:?}");
    let bindings = scene.api::<RoleBinding>().list(&grants).await?.items;
    assert!(bindings.is_empty(), "{bindings:?}");
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    assert!(mutating.get_opt("oz").await?.is_none());
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    assert!(validating.get_opt("oz").await?.is_none());
    let secrets = Api::<Secret>::namespaced(client, "oz-system");
    assert!(secrets.get_opt("oz-signing-key").await?.is_none());
    assert!(secrets.get_opt("oz-admission-ca").await?.is_none());
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

    assert_nothing_left(cluster, &scene).await?;
    let ended = records_of(&system.operator.process, scene.name(), "debug")?;
    let last = ended.last().context("no record")?;
    assert_eq!(format!("{last:?}"), "AccessRevoked", "{ended:?}");
    assert!(alice.api().get_opt("debug").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn without_an_operator_access_ends_all_the_same() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    let mut system = System::start(cluster).await?;
    permit(cluster)?;
    let scene = Scene::set(cluster, "deserted").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("debug", TEMPLATE, "30m"))
        .await?;
    system.operator.process.kill9();
    system.webhook.process.kill9();

    run(uninstall(cluster, "3s")?)?;

    assert_nothing_left(cluster, &scene).await
}
