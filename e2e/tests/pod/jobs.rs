//! Jobs and CronJobs as models: the pod is like theirs, and their controllers do not adopt it.

use anyhow::Result;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{ListParams, PostParams};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use crate::scene;
use crate::support::{Requests, pod_name, template};

#[tokio::test]
async fn a_pod_like_those_of_a_job_is_none_of_its() -> Result<()> {
    let scene = scene("pod-jobs").await?;
    let labels = json!({"example.test/takes-time": "yes"});
    let job = json!({"template": {
        "metadata": {"labels": labels},
        "spec": {
            "restartPolicy": "OnFailure",
            "containers": [{"name": "import", "image": "example.test/import:1"}],
        },
    }});
    let once: Job =
        serde_json::from_value(json!({"metadata": {"name": "once"}, "spec": job.clone()}))?;
    let post = PostParams::default();
    scene.api().create(&post, &once).await?;
    let nightly: CronJob = serde_json::from_value(json!({
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 0 31 2 *", "jobTemplate": {"spec": job}},
    }))?;
    scene.api().create(&post, &nightly).await?;
    let alice = Requests::new(&scene, "alice").await?;
    for (kind, name) in [("Job", "once"), ("CronJob", "nightly")] {
        let target = json!({"apiVersion": "batch/v1", "kind": kind, "name": name});
        template(&scene, name, json!({"controllerTargetRef": target})).await?;
        let granted = alice.granted(name, name, "5m").await?;
        let pod: Pod = scene.api().get(&pod_name(&granted)).await?;
        let labels = pod.labels().keys();
        let theirs = |label: &&String| !label.starts_with("oz.wizardofoz.co/");
        let mut rest = labels
            .filter(theirs)
            .filter(|label| !label.contains("managed-by"));
        assert_eq!(rest.next(), None, "{kind}");
        let spec = pod.spec.unwrap_or_default();
        assert_eq!(spec.containers[0].name, "import", "{kind}");
        assert_eq!(spec.restart_policy.as_deref(), Some("Never"), "{kind}");
    }
    let own = eventually("the Job to count its pods", CONDITION_TIMEOUT, async || {
        let job: Job = scene.api().get("once").await?;
        Ok(job.status.and_then(|status| status.active))
    })
    .await?;
    assert_eq!(own, 1);
    let jobs = scene.api::<Job>().list(&ListParams::default()).await?;
    assert_eq!(jobs.items.len(), 1, "nothing was run for the CronJob");
    Ok(())
}
