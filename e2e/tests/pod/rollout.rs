//! Argo Rollouts as models, where their kind exists.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, PostParams};
use oz_api::TargetKind;
use oz_e2e::{WORKLOAD, rollouts};
use serde_json::json;

use crate::scene;
use crate::support::{Requests, pod_name, template};

#[tokio::test]
async fn a_rollout_is_a_model_by_its_own_template_or_by_its_deployment() -> Result<()> {
    let scene = scene("pod-rollout").await?;
    let rollouts = rollouts(&scene.admin, scene.name()).await?;
    let resource = TargetKind::Rollout.resource();
    let pod = json!({"containers": [{"name": "argo", "image": "example.test/argo:1"}]});
    for (name, spec, container) in [
        (
            "own",
            json!({"template": {"metadata": {}, "spec": pod}}),
            "argo",
        ),
        (
            "by",
            json!({"workloadRef": {"kind": "Deployment", "name": WORKLOAD}}),
            "app",
        ),
    ] {
        let rollout = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
        rollouts.create(&PostParams::default(), &rollout).await?;
        let target = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": name});
        template(&scene, name, json!({"controllerTargetRef": target})).await?;
        let alice = Requests::new(&scene, "alice").await?;
        let granted = alice.granted(name, name, "5m").await?;
        let pod: Pod = scene.api().get(&pod_name(&granted)).await?;
        let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
        assert_eq!(containers[0].name, container);
    }
    Ok(())
}
