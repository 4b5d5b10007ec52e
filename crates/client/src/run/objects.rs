//! Runs, and the objects that they use.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use oz_api::harness::{ClusterHarnessTemplate, HarnessRun, RunPhase};
use serde::de::DeserializeOwned;

use super::RunError;
use crate::cluster::Cluster;
use crate::failure::Result;
use crate::names;

/// Returns the run with this name.
///
/// # Errors
/// There is none, or it cannot be read.
pub async fn find_run(cluster: &Cluster, name: &str) -> Result<HarnessRun, RunError> {
    let name = names::checked(name)?;
    let found = cluster.find(&cluster.api::<HarnessRun>(), name).await?;
    found.ok_or_else(|| RunError::NoRun {
        name: name.to_owned(),
        namespace: cluster.namespace.clone(),
    })
}

/// Returns the phase of a run; a run without a phase in its status is pending.
#[must_use]
pub fn phase(run: &HarnessRun) -> RunPhase {
    let phase = run.status.as_ref().and_then(|status| status.phase);
    phase.unwrap_or_default()
}

/// Lists the objects of a kind with these labels, in the chosen namespace or everywhere.
///
/// # Errors
/// They cannot be read.
pub async fn list<K>(
    cluster: &Cluster,
    everywhere: bool,
    selector: Option<&String>,
) -> Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    selected(cluster, &cluster.api_in::<K>(everywhere), selector).await
}

/// Lists the templates of the cluster with these labels.
///
/// # Errors
/// They cannot be read.
pub async fn cluster_templates(
    cluster: &Cluster,
    selector: Option<&String>,
) -> Result<Vec<ClusterHarnessTemplate>> {
    let api = Api::all(cluster.client.clone());
    selected(cluster, &api, selector).await
}

async fn selected<K>(cluster: &Cluster, api: &Api<K>, selector: Option<&String>) -> Result<Vec<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = ListParams {
        label_selector: selector.cloned(),
        ..ListParams::default()
    };
    Ok(cluster.answer(api.list(&parameters)).await?.items)
}

/// The result of ending a run before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The run is deleted.
    Deleted,
    /// The run had ended in this phase, and is not changed.
    Over(RunPhase),
    /// Another user has deleted the run.
    Gone,
}

/// Ends a run before its time: deletes it. The operator ends its pod, and keeps the record.
///
/// # Errors
/// The run does not exist, or may not be deleted.
pub async fn cancel(cluster: &Cluster, name: &str) -> Result<Cancelled, RunError> {
    let run = find_run(cluster, name).await?;
    let phase = phase(&run);
    if phase.is_terminal() {
        return Ok(Cancelled::Over(phase));
    }
    // Another run may have the same name by now.
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: run.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let api = cluster.api::<HarnessRun>();
    match cluster.answer(api.delete(name, &parameters)).await {
        Ok(_) => Ok(Cancelled::Deleted),
        Err(failure) if failure.is_not_found() => Ok(Cancelled::Gone),
        Err(failure) => Err(failure.into()),
    }
}
