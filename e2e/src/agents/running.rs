//! A submitted run of an agent: its pod, the report of its agent, its end.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use oz_api::harness::{HarnessRun, RunPhase};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::{Value, json};

use super::AgentScene;

/// The volume with the workspace of a run that names none.
const WORKSPACE_VOLUME: &str = "volumes/kubernetes.io~empty-dir/workspace";

/// Returns the directory on this machine of the volume `workspace` of a pod.
pub(super) fn workspace(cluster: &Cluster, pod: &Pod) -> Result<PathBuf> {
    let uid = pod.uid().context("the pod has no UID")?;
    let pods = cluster.state_dir().join("node/kubelet/pods");
    Ok(pods.join(uid).join(WORKSPACE_VOLUME))
}

/// Returns the lines of the report in a workspace; none while there is no report.
pub(super) fn lines(workspace: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(workspace.join("report.jsonl")).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines.collect()
}

/// A submitted run.
#[allow(missing_debug_implementations, reason = "a client has none")]
pub struct Running<'a> {
    scene: &'a AgentScene,
    name: String,
}

impl<'a> Running<'a> {
    pub(super) fn new(scene: &'a AgentScene, name: &str) -> Self {
        Self {
            scene,
            name: name.to_owned(),
        }
    }

    /// Returns the run.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn get(&self) -> Result<HarnessRun> {
        Ok(self.scene.scene.api::<HarnessRun>().get(&self.name).await?)
    }

    /// Returns the pod of the run, once it exists.
    ///
    /// # Errors
    /// When it does not exist in time, with the status of the run.
    pub async fn pod(&self) -> Result<Pod> {
        let pods = self.scene.scene.api::<Pod>();
        let of_run = ListParams::default().labels(&format!("job-name={}", self.name));
        eventually("the pod of the run", CONDITION_TIMEOUT, async || {
            let pod = pods.list(&of_run).await?.items.into_iter().next();
            match pod {
                Some(pod) => Ok(Some(pod)),
                None => bail!("{}", json!(self.get().await?.status)),
            }
        })
        .await
    }

    /// Returns the directory of the workspace on this machine.
    ///
    /// # Errors
    /// When the pod has no UID.
    pub fn workspace(&self, pod: &Pod) -> Result<PathBuf> {
        workspace(self.scene.cluster, pod)
    }

    /// Returns the pod of the run, once its agent has started.
    ///
    /// # Errors
    /// When it does not start, with its status.
    pub async fn started(&self) -> Result<Pod> {
        let name = self.pod().await?.name_any();
        let pods = self.scene.scene.api::<Pod>();
        eventually("the agent to start", CONDITION_TIMEOUT, async || {
            let pod = pods.get(&name).await?;
            let status = pod.status.clone().unwrap_or_default();
            let mut containers = status.container_statuses.iter().flatten();
            match containers.any(|it| it.started == Some(true)) {
                true => Ok(Some(pod)),
                false => bail!("{}", json!([self.get().await?.status, status])),
            }
        })
        .await
    }

    /// Waits for a line of the agent's report, and returns all lines so far.
    ///
    /// # Errors
    /// When the line does not come, or the run ends before.
    pub async fn report(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
        let pod = self.pod().await?;
        let workspace = self.workspace(&pod)?;
        // Many attempts wait for a response that does not arrive.
        eventually(what, CONDITION_TIMEOUT * 4, async || {
            let lines = lines(&workspace);
            if lines.iter().any(&wanted) {
                return Ok(Some(Ok(lines)));
            }
            let status = self.get().await?.status.unwrap_or_default();
            let pods = self.scene.scene.api::<Pod>();
            let pod = pods.get_opt(&pod.name_any()).await?;
            let pod = json!(pod.and_then(|pod| pod.status));
            let report =
                anyhow::anyhow!("the report is {lines:?}, the run {}, {pod}", json!(status));
            match status.completion_time {
                Some(_) => Ok(Some(Err(report))),
                None => Err(report),
            }
        })
        .await?
    }

    /// Lets the agent end.
    ///
    /// # Errors
    /// When the pod does not exist.
    pub async fn release(&self) -> Result<()> {
        let pod = self.pod().await?;
        Ok(std::fs::write(self.workspace(&pod)?.join("release"), "")?)
    }

    /// Waits for the end of the run, and returns its phase.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn ended(&self) -> Result<RunPhase> {
        eventually("the run to end", CONDITION_TIMEOUT, async || {
            let phase = self.get().await?.status.and_then(|status| status.phase);
            let is_over = matches!(
                phase,
                Some(RunPhase::Succeeded | RunPhase::Failed | RunPhase::Cancelled)
            );
            Ok(phase.filter(|_| is_over))
        })
        .await
    }

    /// Deletes the run, and waits until it is gone.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn delete(&self) -> Result<()> {
        let runs = self.scene.scene.api::<HarnessRun>();
        runs.delete(&self.name, &DeleteParams::default()).await?;
        self.scene
            .scene
            .gone::<HarnessRun>(&self.name, CONDITION_TIMEOUT)
            .await
    }
}
