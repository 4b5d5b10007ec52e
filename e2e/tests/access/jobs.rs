//! Jobs and CronJobs: access to the pod of a run in progress.

use anyhow::Result;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::PostParams;
use oz_api::TargetKind;
use oz_e2e::{Scene, conditions_line, exec_request, exec_template, run};
use oz_testkit::{Cluster, fixtures};
use serde_json::{Value, json};

use crate::system;

/// Returns a Job with pods that run until they are deleted.
fn job() -> Value {
    json!({"template": {
        "metadata": {"labels": {"example.test/takes-time": "yes"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "app", "image": fixtures::IMAGE}],
        },
    }})
}

async fn scene(prefix: &str) -> Result<Scene> {
    system().await?;
    Scene::empty(Cluster::shared().await?, prefix).await
}

#[tokio::test]
async fn access_to_a_job_is_to_its_pod() -> Result<()> {
    let scene = scene("job").await?;
    for name in ["once", "other"] {
        let one = json!({"metadata": {"name": name}, "spec": job()});
        let one: Job = serde_json::from_value(one)?;
        scene.api().create(&PostParams::default(), &one).await?;
    }
    let template = exec_template("once", TargetKind::Job, "once");
    scene.template(&template).await?;
    let alice = scene.requests("alice").await?;
    let asked = alice.granted(&exec_request("once", "once", "5m")).await?;
    assert!(asked.pod().starts_with("once-"), "{}", asked.pod());
    Ok(())
}

#[tokio::test]
async fn access_to_a_cron_job_waits_for_a_run_and_is_to_its_pod() -> Result<()> {
    let scene = scene("cronjob").await?;
    for name in ["nightly", "other"] {
        let one: CronJob = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"schedule": "0 0 31 2 *", "jobTemplate": {"spec": job()}},
        }))?;
        scene.api().create(&PostParams::default(), &one).await?;
    }
    let create_job = |name: &str, of: &str| {
        let mut kubectl = scene.cluster.kubectl("admin");
        kubectl.args(["create", "job", "-n", scene.name(), name]);
        kubectl.arg(format!("--from=cronjob/{of}"));
        run(kubectl)
    };
    create_job("not-this", "other")?;
    let template = exec_template("nightly", TargetKind::CronJob, "nightly");
    scene.template(&template).await?;
    let alice = scene.requests("alice").await?;
    alice.create(&exec_request("ask", "nightly", "5m")).await?;
    alice
        .until("ask", "to wait for a run", |status| {
            conditions_line(status).contains("CronJob nightly has no pod that is Running")
        })
        .await?;
    create_job("by-hand", "nightly")?;
    let asked = alice.ready("ask").await?;
    assert!(asked.pod().starts_with("by-hand-"), "{}", asked.pod());
    Ok(())
}
