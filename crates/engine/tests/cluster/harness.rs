//! The cluster for all tests of this binary, an engine per test, and functions that wait for
//! conditions.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt, Resource};
use oz_engine::Engine;
use oz_runtime::{Election, Runtime, RuntimeError, ServerClock};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, TestNamespace, eventually};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::timebox::{ObserveTimeboxes, Timebox, TimeboxSpec, Timeboxes};

/// Returns the shared cluster, with the CRD installed.
pub(crate) async fn cluster() -> Result<&'static Cluster> {
    let cluster = Cluster::shared().await?;
    install(cluster).await?;
    Ok(cluster)
}

/// Installs the CRD.
pub(crate) async fn install(cluster: &Cluster) -> Result<()> {
    let crds = Api::<CustomResourceDefinition>::all(cluster.client("admin").await?);
    let mut crd = serde_json::to_value(Timebox::crd())?;
    // Accepts objects that do not decode.
    let slow = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/slow";
    if let Some(slow) = crd.pointer_mut(slow) {
        *slow = json!({"x-kubernetes-preserve-unknown-fields": true});
    }
    let name = Timebox::crd_name();
    let apply = PatchParams::apply("test").force();
    crds.patch(name, &apply, &Patch::Apply(crd)).await?;
    eventually("the CRD to be served", CONDITION_TIMEOUT, async || {
        let crd = crds.get(name).await?;
        let conditions = crd.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        Ok(conditions
            .any(|condition| condition.type_ == "Established" && condition.status == "True")
            .then_some(()))
    })
    .await
}

/// A running engine; it stops when this is dropped.
pub(crate) struct Running {
    pub(crate) controller: Timeboxes,
    stop: CancellationToken,
    task: JoinHandle<Result<(), RuntimeError>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Running {
    /// Stops the engine as a signal would.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        (&mut self.task).await??;
        Ok(())
    }

    /// Ends the engine without any clean-up, as `kill -9` would.
    pub(crate) async fn kill(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// Waits until the engine ends without a stop.
    pub(crate) async fn ended(mut self) -> Result<Result<(), RuntimeError>> {
        Ok(tokio::time::timeout(CONDITION_TIMEOUT, &mut self.task).await??)
    }
}

/// Returns a client with the engine's own settings that acts as a separate user, so that the audit
/// log shows the requests of the engine.
pub(crate) async fn engine_client(cluster: &Cluster, user: &str) -> Result<(Client, ServerClock)> {
    let path = cluster.issue_kubeconfig(user, &["system:masters"])?;
    let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok(oz_runtime::client(config)?)
}

/// Runs the engine over one namespace.
pub(crate) async fn run(
    cluster: &Cluster,
    user: &str,
    namespace: &TestNamespace,
) -> Result<Running> {
    run_with(cluster, user, namespace, Election::Off).await
}

pub(crate) async fn run_with(
    cluster: &Cluster,
    user: &str,
    namespace: &TestNamespace,
    election: Election,
) -> Result<Running> {
    let (client, clock) = engine_client(cluster, user).await?;
    let mut engine = Engine::new(Runtime::new("oz", client, clock));
    let runtime = engine.runtime();
    runtime.feeds().restrict([namespace.name().to_owned()]);
    runtime.election(election);
    let controller = Timeboxes::default();
    let observe = ObserveTimeboxes::new(engine.controllers().feeds());
    engine.controller(controller.clone(), observe);
    let stop = CancellationToken::new();
    let task = tokio::spawn(engine.run(stop.clone()));
    Ok(Running {
        controller,
        stop,
        task,
    })
}

/// Returns a box that never ends.
pub(crate) fn timebox(name: &str) -> Timebox {
    Timebox::new(name, TimeboxSpec::holding("gold"))
}

/// Returns a box that ends.
pub(crate) fn timebox_until(name: &str, until: Timestamp) -> Timebox {
    let mut timebox = timebox(name);
    timebox.spec.until = Some(until.to_string());
    timebox
}

/// Returns the instant after this number of milliseconds.
pub(crate) fn from_now(milliseconds: u64) -> Timestamp {
    Timestamp::now() + Duration::from_millis(milliseconds)
}

pub(crate) fn api<K>(client: &Client, namespace: &TestNamespace) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), namespace.name())
}

/// Waits until a box has this phase.
pub(crate) async fn phase(api: &Api<Timebox>, name: &str, phase: &str) -> Result<Timebox> {
    eventually(
        &format!("{name} to be {phase}"),
        CONDITION_TIMEOUT,
        async || {
            let timebox = api.get(name).await?;
            let status = timebox.status.clone().unwrap_or_default();
            anyhow::ensure!(status.phase == phase, "it is {status:?}");
            Ok(Some(timebox))
        },
    )
    .await
}

/// Waits until an object is deleted.
pub(crate) async fn gone<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    eventually(
        &format!("{name} to be gone"),
        CONDITION_TIMEOUT,
        async || Ok(api.get_opt(name).await?.is_none().then_some(())),
    )
    .await
}
