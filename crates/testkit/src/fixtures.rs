//! Workloads for tests. The image is never pulled: kwok declares the pods ready, and a real node
//! has it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::wait::eventually;

/// The time that pods may take to become Ready.
const FIXTURE_TIMEOUT: Duration = Duration::from_secs(60);

/// The container in the pods of every fixture.
pub const CONTAINER: &str = "app";

/// The image in the containers of every fixture: busybox, on a real node.
pub const IMAGE: &str = "example.test/app:1";

/// Creates a Deployment with the label `app=<name>` and waits until its pods are Ready. Returns the
/// pods, ordered by name.
///
/// # Errors
///
/// Fails when the server refuses it, or not all pods are Ready after a minute.
pub async fn deployment(
    client: &Client,
    namespace: &str,
    name: &str,
    replicas: usize,
) -> Result<Vec<Pod>> {
    let spec = json!({ "replicas": replicas });
    create::<Deployment>(client, namespace, name, spec).await?;
    ready_pods(client, namespace, &format!("app={name}"), replicas).await
}

/// Creates a Deployment like [`deployment`] with one pod, which has these containers and ends one
/// second after the request to end.
///
/// # Errors
///
/// As [`deployment`].
pub async fn deployment_of(
    client: &Client,
    namespace: &str,
    name: &str,
    containers: &[Value],
) -> Result<Pod> {
    let pod = json!({ "containers": containers, "terminationGracePeriodSeconds": 1 });
    let spec = json!({ "template": { "spec": pod } });
    create::<Deployment>(client, namespace, name, spec).await?;
    let mut pods = ready_pods(client, namespace, &format!("app={name}"), 1).await?;
    Ok(pods.remove(0))
}

/// Creates a StatefulSet like [`deployment`]: its pods are `<name>-0`, `<name>-1` and so on.
///
/// # Errors
///
/// As [`deployment`].
pub async fn stateful_set(
    client: &Client,
    namespace: &str,
    name: &str,
    replicas: usize,
) -> Result<Vec<Pod>> {
    let spec = json!({ "replicas": replicas, "serviceName": name });
    create::<StatefulSet>(client, namespace, name, spec).await?;
    ready_pods(client, namespace, &format!("app={name}"), replicas).await
}

/// Creates a DaemonSet like [`deployment`]: the embedded cluster has one node, so it gets one pod
/// there.
///
/// # Errors
///
/// As [`deployment`].
pub async fn daemon_set(client: &Client, namespace: &str, name: &str) -> Result<Vec<Pod>> {
    create::<DaemonSet>(client, namespace, name, json!({})).await?;
    ready_pods(client, namespace, &format!("app={name}"), 1).await
}

/// Waits until exactly `count` pods match `selector` and all are Ready and not being deleted.
/// Returns them, ordered by name.
///
/// # Errors
///
/// Fails when the pods do not match after a minute; the message contains the last observed state.
pub async fn ready_pods(
    client: &Client,
    namespace: &str,
    selector: &str,
    count: usize,
) -> Result<Vec<Pod>> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let what = format!("{count} ready pods with {selector} in {namespace}");
    eventually(&what, FIXTURE_TIMEOUT, async || {
        let pods = pods
            .list(&ListParams::default().labels(selector))
            .await?
            .items;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        if ready != count || pods.len() != count {
            bail!("{ready} of {} are ready", pods.len());
        }
        Ok(Some(pods))
    })
    .await
}

/// Checks whether the pod's condition Ready is True and it is not being deleted.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn create<K>(client: &Client, namespace: &str, name: &str, mut spec: Value) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let kind = K::kind(&());
    let failed = || format!("failed to create {kind} {namespace}/{name}");
    let labels = json!({ "app": name });
    spec["selector"] = json!({ "matchLabels": labels });
    let pod = &mut spec["template"];
    pod["metadata"] = json!({ "labels": labels });
    if pod["spec"].is_null() {
        pod["spec"] = json!({ "containers": [{ "name": CONTAINER, "image": IMAGE }] });
    }
    let object = json!({
        "apiVersion": K::api_version(&()),
        "kind": kind,
        "metadata": { "name": name, "labels": labels },
        "spec": spec,
    });
    let object: K = serde_json::from_value(object).with_context(failed)?;
    let api = Api::<K>::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &object)
        .await
        .with_context(failed)?;
    Ok(())
}
