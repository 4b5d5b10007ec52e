//! The prerequisites of harness runs: their kinds, an announced broker without a process, volumes, a
//! template.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use oz_api::harness::HarnessTemplate;
use oz_api::names;
use oz_runs::authority::BUNDLE_KEY;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::{Value, json};

use crate::system::apply_as;
use crate::{NAMESPACE, Scene, apply};

/// Applies the kinds of harness runs, and the permissions of the broker.
///
/// # Errors
/// When the API server refuses one of them.
pub fn install_harness(cluster: &Cluster) -> Result<()> {
    for part in ["charts/oz/files/harness", "deploy/rbac/harness"] {
        apply(cluster, part)?;
    }
    Ok(())
}

/// Returns a NetworkPolicy, `allow-dns`, that permits every pod of its namespace to query name servers.
///
/// # Errors
/// Never: the object is well formed.
pub fn allow_dns() -> serde_json::Result<NetworkPolicy> {
    serde_json::from_value(json!({
        "metadata": {"name": "allow-dns"},
        "spec": {
            "podSelector": {}, "policyTypes": ["Egress"],
            "egress": [{"ports": [{"protocol": "UDP", "port": 53}]}],
        },
    }))
}

/// Announces the address and the certificates of a broker, for tests in which no pod contacts it: the
/// ConfigMap and the Service.
///
/// # Errors
/// When the API server refuses one of them.
pub async fn announce_broker(admin: &Client) -> Result<()> {
    let certificates = json!({
        "metadata": {"name": names::BROKER_CA},
        "data": {BUNDLE_KEY: "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"},
    });
    let maps = Api::<ConfigMap>::namespaced(admin.clone(), NAMESPACE);
    apply_as(&maps, certificates).await?;
    let service = json!({
        "metadata": {"name": names::BROKER},
        "spec": {"ports": [{"name": "broker", "port": 8443}]},
    });
    let services = Api::<Service>::namespaced(admin.clone(), NAMESPACE);
    apply_as(&services, service).await?;
    Ok(())
}

const BY_HAND_NODE: &str = "by-hand";
/// The interval in which the kubelet of that node looks at its pods.
const KUBELET_PERIOD: Duration = Duration::from_millis(100);

/// Makes a node without a kubelet: the test itself sets the status of its pods, which are those that
/// [`by_hand_overlay`] places there.
///
/// # Errors
/// When the API server refuses it.
pub async fn node_by_hand(admin: &Client) -> Result<()> {
    let nodes = Api::<Node>::all(admin.clone());
    let taint = json!({"key": "node", "value": BY_HAND_NODE, "effect": "NoSchedule"});
    let node = json!({
        "metadata": {"name": BY_HAND_NODE, "labels": {"node": BY_HAND_NODE}},
        "spec": {"taints": [taint]},
    });
    apply_as(&nodes, node).await?;
    let size = json!({"cpu": "1000", "memory": "1Ti", "pods": "10000"});
    let status = Patch::Merge(json!({"status": {"allocatable": size, "capacity": size}}));
    nodes
        .patch_status(BY_HAND_NODE, &PatchParams::default(), &status)
        .await?;
    Ok(())
}

/// Returns the overlay of a template that places a pod on the node of [`node_by_hand`].
#[must_use]
pub fn by_hand_overlay() -> Value {
    json!({"spec": {
        "nodeSelector": {"node": BY_HAND_NODE},
        "tolerations": [{"operator": "Exists"}],
    }})
}

/// Returns the status that a kubelet reports for a pod with an agent that has just started.
#[must_use]
pub fn agent_running() -> Value {
    let now = Timestamp::now().strftime("%FT%TZ").to_string();
    let running = json!({"running": {"startedAt": now}});
    json!({
        "phase": "Running",
        "startTime": now,
        "containerStatuses": [{
            "name": "agent", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": running,
        }],
    })
}

/// Creates a volume for a claim, which cannot be mounted: a simulated node has no provisioner.
///
/// # Errors
/// When the API server refuses it.
pub async fn volume(admin: &Client, name: &str) -> Result<()> {
    let path = json!({"path": format!("/nonexistent/{name}")});
    provide(admin, name, json!({"hostPath": path})).await
}

/// Creates a volume for a claim, on the cluster's real node.
///
/// # Errors
/// When the volume cannot be created, or the API server refuses it.
pub async fn local_volume(cluster: &Cluster, admin: &Client, name: &str) -> Result<()> {
    let path = cluster.state_dir().join(name);
    std::fs::create_dir_all(&path)?;
    let here = json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]});
    let source = json!({
        "local": {"path": path},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    });
    provide(admin, name, source).await
}

async fn provide(admin: &Client, name: &str, source: Value) -> Result<()> {
    let mut volume = json!({"metadata": {"name": name}, "spec": source});
    volume["spec"]["capacity"] = json!({"storage": "1Gi"});
    volume["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
    apply_as(&Api::<PersistentVolume>::all(admin.clone()), volume).await?;
    Ok(())
}

impl Scene {
    /// Acts as the kubelet of the node of [`node_by_hand`] for the pods of the namespace, until it fails: the agent of
    /// each pod runs, and a deleted pod ends at once.
    ///
    /// # Errors
    /// When the API server refuses a request.
    pub async fn kubelet_by_hand(&self) -> Result<()> {
        let pods = self.api::<Pod>();
        let placed = ListParams::default().fields(&format!("spec.nodeName={BY_HAND_NODE}"));
        let running = PatchParams::default();
        let at_once = DeleteParams::default().grace_period(0);
        loop {
            for pod in pods.list(&placed).await? {
                let name = pod.name_any();
                let status = pod.status.as_ref();
                let is_pending = status.and_then(|it| it.phase.as_deref()) == Some("Pending");
                let answer = if pod.metadata.deletion_timestamp.is_some() {
                    pods.delete(&name, &at_once).await.map(drop)
                } else if is_pending {
                    let patch = Patch::Merge(json!({"status": agent_running()}));
                    pods.patch_status(&name, &running, &patch).await.map(drop)
                } else {
                    Ok(())
                };
                match answer {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    other => other?,
                }
            }
            tokio::time::sleep(KUBELET_PERIOD).await;
        }
    }

    /// Creates the template `echo` with this overlay for its pods.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn echo_template(&self, overlay: Value) -> Result<()> {
        let template = json!({
            "metadata": {"name": "echo"},
            "spec": {
                "harness": "echo",
                "image": "echo:1",
                "command": ["echo"],
                "defaults": {"timeout": "10m"},
                "workspace": {"required": true, "mountPath": "/workspace"},
                "podTemplateOverlay": overlay,
            },
        });
        apply_as(&self.api::<HarnessTemplate>(), template).await?;
        Ok(())
    }
}

/// Waits until the next second: of two runs that are created within one second, their UIDs decide which one is first.
///
/// # Errors
/// When the clock stands still.
pub async fn next_second() -> Result<()> {
    let second = Timestamp::now().as_second();
    eventually("the next second", CONDITION_TIMEOUT, async || {
        Ok((Timestamp::now().as_second() > second).then_some(()))
    })
    .await
}
