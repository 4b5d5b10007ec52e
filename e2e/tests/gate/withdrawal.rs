//! An APIService that does not respond blocks the deletion of every namespace: without a gate there is none.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use oz_api::names;
use oz_e2e::{
    GATED, Gate, NAMESPACE, Options, Scene, System, apply, apply_as, exec_request, gate_template,
};
use oz_gating::API_SERVICE;
use oz_gating::registration::{COMPONENT, GATE, SERVICE_NAME};
use oz_testkit::eventually;
use serde_json::json;

use crate::{TURN, cluster};

/// A time longer than the removal of the APIService and the deletion of a namespace take.
const MINUTES: Duration = Duration::from_secs(120);

/// Sets the readiness of the gate, as the kubelet would.
async fn ready(admin: &Client, gate: std::net::SocketAddr, ready: bool) -> Result<()> {
    let slice = json!({
        "metadata": {"name": "oz-gate-test", "labels": {SERVICE_NAME: names::GATE}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": ready}}],
        "ports": [{"name": "gate", "port": gate.port(), "protocol": "TCP"}],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(admin.clone(), NAMESPACE);
    apply_as(&slices, slice).await.map(drop)
}

async fn gets_in(scene: &Scene, pod: &str) -> Result<()> {
    eventually("alice to get in", MINUTES, async || {
        let command = ["exec", pod, "--", "true"];
        let output = scene.through_gate("alice", "mine", &command).output()?;
        Ok(output.status.success().then_some(()))
    })
    .await
}

#[tokio::test]
async fn without_a_ready_gate_namespaces_can_be_deleted_and_with_the_next_one_people_get_in()
-> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = cluster().await?;
    let admin = cluster.client("admin").await?;
    let serving = Gate::free_address(cluster)?;
    apply(cluster, "deploy/rbac/00-namespace.yaml")?;
    apply(cluster, "deploy/rbac/gate")?;
    ready(&admin, serving, true).await?;
    let options = Gate::operator_options()
        .set("gate.unregisterWhenUnavailable", true)
        .set("gate.service.port", serving.port());
    let _system = System::start_with(cluster, &options).await?;
    let mut gate = Gate::start_at(cluster, &Options::default(), serving).await?;
    let services: Api<APIService> = Api::all(admin.clone());
    let label = json!({"metadata": {"labels": {COMPONENT: GATE}}});
    services
        .patch(API_SERVICE, &PatchParams::default(), &Patch::Merge(&label))
        .await?;
    let scene = Scene::set(cluster, "withdrawal").await?;
    scene.template(&gate_template()).await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "10m")).await?;
    gets_in(&scene, &granted.pod()).await?;

    gate.process.kill9();
    ready(&admin, serving, false).await?;
    eventually("the APIService to go", MINUTES, async || {
        Ok(services.get_opt(API_SERVICE).await?.is_none().then_some(()))
    })
    .await?;
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let name = format!("{}-goes", scene.name());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    namespaces.delete(&name, &DeleteParams::default()).await?;
    eventually("a namespace to go", MINUTES, async || {
        Ok(namespaces.get_opt(&name).await?.is_none().then_some(()))
    })
    .await?;

    gate.again(cluster, &Options::default()).await?;
    let absent = services.get_opt(API_SERVICE).await?.is_none();
    ensure!(absent, "it was put back while no gate was ready");
    ready(&admin, serving, true).await?;
    gets_in(&scene, &granted.pod()).await
}
