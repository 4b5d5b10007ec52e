//! Argo Rollouts as targets, with a minimal definition.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
use oz_api::TargetKind;
use oz_testkit::eventually;
use serde_json::json;

/// Returns the Rollouts of a namespace, once their definition exists and is served.
///
/// # Errors
/// As the API server responds.
pub async fn rollouts(admin: &Client, namespace: &str) -> Result<Api<DynamicObject>> {
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
    let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
    match crds.create(&PostParams::default(), &crd).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => drop(created?),
    }
    let resource = TargetKind::Rollout.resource();
    let rollouts = Api::namespaced_with(admin.clone(), namespace, &resource);
    let timeout = Duration::from_secs(60);
    eventually("the definition to be served", timeout, async || {
        Ok(rollouts.list(&ListParams::default()).await.ok().map(drop))
    })
    .await?;
    Ok(rollouts)
}
