//! Argo Rollouts as models, where their kind exists: here with a definition that has only what is
//! needed.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use oz_e2e::WORKLOAD;
use oz_testkit::eventually;
use serde_json::json;

use crate::scene;
use crate::support::{PATIENCE, Requests, pod_name, template};

#[tokio::test]
async fn a_rollout_is_a_model_by_its_own_template_or_by_its_deployment() -> Result<()> {
    let scene = scene("pod-rollout").await?;
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "rollouts.argoproj.io"},
        "spec": {
            "group": "argoproj.io",
            "scope": "Namespaced",
            "names": {"kind": "Rollout", "plural": "rollouts", "singular": "rollout"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": any},
            }],
        },
    }))?;
    let crds: Api<CustomResourceDefinition> = Api::all(scene.admin.clone());
    crds.create(&PostParams::default(), &crd).await?;
    let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout");
    let resource = ApiResource::from_gvk(&kind);
    let rollouts: Api<DynamicObject> =
        Api::namespaced_with(scene.admin.clone(), scene.name(), &resource);
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
        eventually("the definition to be served", PATIENCE, async || {
            let created = rollouts.create(&PostParams::default(), &rollout).await;
            Ok(created.ok())
        })
        .await?;
        let target = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": name});
        template(&scene, name, json!({"controllerTargetRef": target})).await?;
        let alice = Requests::of(&scene, "alice").await?;
        let granted = alice.granted(name, name, "5m").await?;
        let pod: Pod = scene.api().get(&pod_name(&granted)).await?;
        let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
        assert_eq!(containers[0].name, container);
    }
    Ok(())
}
