//! The retention of requests that have ended, and the rights of a grant in addition to exec.

use std::collections::BTreeSet;

use anyhow::Result;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::PostParams;
use oz_api::{Operation, TargetKind};
use oz_e2e::{
    Operator, Options, Scene, TEMPLATE, Webhook, exec_request, exec_template, install, pod_request,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use crate::alone;

#[tokio::test]
async fn finished_requests_are_deleted_after_retention() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    install(cluster).await?;
    let _webhook = Webhook::start(cluster, &Options::default()).await?;
    let brief = Options::default().set("operator.keepFinished", "1s");
    let _operator = Operator::start(cluster, &brief).await?;
    let scene = Scene::set(cluster, "kept").await?;
    scene.pod_template(TEMPLATE, &json!({})).await?;
    let (exec, pods) = (
        scene.requests("alice").await?,
        scene.pod_requests("alice").await?,
    );
    exec.create(&exec_request("brief", TEMPLATE, "3s")).await?;
    pods.create(&pod_request("brief", TEMPLATE, "3s")).await?;
    eventually("both to go", CONDITION_TIMEOUT, async || {
        let exec = exec.api().get_opt("brief").await?;
        let pod = pods.api().get_opt("brief").await?;
        Ok((exec.is_none() && pod.is_none()).then_some(()))
    })
    .await
}

/// Users run scripts of apply, wait and exec again.
#[tokio::test]
async fn reapplied_manifest_is_granted_again_after_expiry() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    install(cluster).await?;
    let _webhook = Webhook::start(cluster, &Options::default()).await?;
    let brief = Options::default().set("operator.keepFinished", "1s");
    let _operator = Operator::start(cluster, &brief).await?;
    let scene = Scene::set(cluster, "again").await?;
    let alice = scene.requests("alice").await?;
    // Long enough for a grant on a busy machine.
    let mut request = exec_request("again", TEMPLATE, "10s");
    request.metadata.namespace = Some(scene.name().to_owned());
    let file = cluster.state_dir().join("again.json");
    std::fs::write(&file, serde_json::to_vec(&request)?)?;
    let mut seen = BTreeSet::new();
    for _ in 0..2 {
        let mut apply = cluster.kubectl("alice");
        apply.args(["apply", "-f"]).arg(&file);
        oz_e2e::run(apply)?;
        let granted = eventually("a grant", CONDITION_TIMEOUT, async || {
            let request = alice.api().get_opt("again").await?;
            Ok(request.filter(|one| one.status.as_ref().is_some_and(|status| status.ready)))
        })
        .await?;
        seen.extend(granted.metadata.uid);
        eventually("it to be over and gone", CONDITION_TIMEOUT, async || {
            let request = alice.api().get_opt("again").await?;
            Ok(request.is_none().then_some(()))
        })
        .await?;
    }
    assert_eq!(seen.len(), 2, "two requests, each granted");
    Ok(())
}

#[tokio::test]
async fn all_operations_are_granted_and_claims_are_inspected() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    install(cluster).await?;
    let _webhook = Webhook::start(cluster, &Options::default()).await?;
    let _operator = Operator::start(cluster, &Options::default()).await?;
    let scene = Scene::set(cluster, "all").await?;
    let mut all = exec_template("all", TargetKind::Deployment, oz_e2e::WORKLOAD);
    all.spec.access_config.operations = vec![
        Operation::Exec,
        Operation::Attach,
        Operation::PortForward,
        Operation::Log,
    ];
    scene.template(&all).await?;
    let alice = scene.requests("alice").await?;
    let asked = alice.granted(&exec_request("all", "all", "5m")).await?;
    let (role, _) = scene.grant(&asked.object_name()).await?;
    let rules = serde_json::to_string(&role)?;
    for resource in ["pods/exec", "pods/attach", "pods/portforward", "pods/log"] {
        assert!(rules.contains(resource), "{rules}");
    }

    // A claim that only one pod may mount blocks a second pod, and the operator reads the claim for that reason.
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}},
    }))?;
    scene.api().create(&PostParams::default(), &claim).await?;
    let mount = json!([
        {"op": "add", "path": "/spec/template/spec/volumes", "value": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ]},
    ]);
    let mut patch = cluster.kubectl("admin");
    patch.args(["patch", "deployment", oz_e2e::WORKLOAD, "--type=json", "-n"]);
    patch.arg(scene.name()).arg("-p").arg(mount.to_string());
    oz_e2e::run(patch)?;
    scene.pod_template("pod", &json!({})).await?;
    let mark = cluster.audit().mark()?;
    let pods = scene.pod_requests("alice").await?;
    pods.create(&pod_request("mounting", "pod", "5m")).await?;
    eventually("the claim to be looked at", CONDITION_TIMEOUT, async || {
        let looked = cluster
            .audit()
            .since(mark)?
            .on("", "persistentvolumeclaims");
        let looked = looked.in_namespace(scene.name()).with_verb("get");
        let ours = looked.filter(|entry| entry.user.ends_with(":oz-operator"));
        Ok((!ours.is_empty()).then_some(()))
    })
    .await
}
