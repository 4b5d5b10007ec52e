//! Harness runs: the operator, while it exists, ends those that are not over; without it, their
//! Jobs are deleted, and the NetworkPolicy of a pod is deleted after the pod. Workspaces and their
//! claims stay, and so do runs that are over.

use std::fmt::Debug;
use std::time::Instant;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, ListParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource, ResourceExt as _};
use oz_api::harness::{HarnessRun, Workspace};
use oz_runs::pod::RUN_LABEL;
use oz_runs::run::is_over;
use oz_runs::workspace::FINALIZER;
use serde::de::DeserializeOwned;

use super::objects::{PAUSE, STOP, delete, finalizers, grants, release, unless_missing};

/// The harness runs of the cluster.
pub(super) struct Runs {
    pub(super) client: Client,
    /// True if they are served; otherwise they are left alone.
    pub(super) are_served: bool,
}

impl Runs {
    /// Deletes the runs that are not over, and returns the number of remaining runs and of their
    /// remaining NetworkPolicies.
    pub(super) async fn end(&self) -> Result<usize> {
        if !self.are_served {
            return Ok(0);
        }
        let all = Api::<HarnessRun>::all(self.client.clone());
        let listed = unless_missing(all.list(&ListParams::default()).await);
        let Some(listed) = listed.context("failed to list HarnessRuns")? else {
            return Ok(0);
        };
        let mut left = self.parts::<NetworkPolicy>().await?.len();
        for run in listed.iter().filter(|run| !is_over(run)) {
            left += 1;
            if run.metadata.deletion_timestamp.is_none() {
                let namespace = run.namespace().unwrap_or_default();
                let api = Api::<HarnessRun>::namespaced(self.client.clone(), &namespace);
                delete(api, &run.name_any()).await?;
            }
        }
        Ok(left)
    }

    /// Removes the objects that no operator removed: Jobs, and once their pods are gone, their
    /// NetworkPolicies. A pod that is still running then stays confined.
    pub(super) async fn remove(&self) -> Result<()> {
        if !self.are_served {
            return Ok(());
        }
        let began = Instant::now();
        loop {
            let jobs = self.parts::<Job>().await?;
            if jobs.is_empty() {
                break;
            }
            if began.elapsed() > STOP {
                let jobs = jobs.len();
                tracing::warn!(
                    jobs,
                    "pods of harness runs did not end in time; their NetworkPolicies stay"
                );
                return Ok(());
            }
            for job in &jobs {
                if job.deletion_timestamp.is_none() {
                    let (namespace, name) = place(job);
                    tracing::warn!(
                        kind = "Job",
                        namespace,
                        name,
                        "removing without the operator"
                    );
                    self.remove_job(namespace, name).await?;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        for policy in self.parts::<NetworkPolicy>().await? {
            let (namespace, name) = place(&policy);
            tracing::warn!(
                kind = "NetworkPolicy",
                namespace,
                name,
                "removing without the operator"
            );
            let api = Api::<NetworkPolicy>::namespaced(self.client.clone(), namespace);
            delete(api, name).await?;
        }
        Ok(())
    }

    /// Releases workspaces that waited for the run that held them.
    pub(super) async fn let_workspaces_go(&self) -> Result<()> {
        if !self.are_served {
            return Ok(());
        }
        let all = Api::<Workspace>::all(self.client.clone());
        let listed = unless_missing(all.list_metadata(&ListParams::default()).await);
        let listed = listed.context("failed to list Workspaces")?;
        for workspace in listed.iter().flatten().map(|object| &object.metadata) {
            if !finalizers(workspace).any(|name| name == FINALIZER) {
                continue;
            }
            let (namespace, name) = place(workspace);
            let api = Api::<Workspace>::namespaced(self.client.clone(), namespace);
            let failed = || format!("failed to let go of Workspace {namespace}/{name}");
            release(&api, workspace, FINALIZER)
                .await
                .with_context(failed)?;
        }
        Ok(())
    }

    /// Returns the objects of runs, of one kind.
    async fn parts<K>(&self) -> Result<Vec<ObjectMeta>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let mut all = grants::<K>(&self.client).await?;
        all.retain(is_of_run);
        Ok(all)
    }

    /// Deletes a Job, which stays until its pods are gone.
    async fn remove_job(&self, namespace: &str, name: &str) -> Result<()> {
        let api = Api::<Job>::namespaced(self.client.clone(), namespace);
        unless_missing(api.delete(name, &DeleteParams::foreground()).await)
            .with_context(|| format!("failed to delete Job {namespace}/{name}"))?;
        Ok(())
    }
}

/// Checks whether an object is a part of a harness run.
pub(super) fn is_of_run(object: &ObjectMeta) -> bool {
    let labels = object.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(RUN_LABEL))
}

fn place(object: &ObjectMeta) -> (&str, &str) {
    (
        object.namespace.as_deref().unwrap_or_default(),
        object.name.as_deref().unwrap_or_default(),
    )
}
