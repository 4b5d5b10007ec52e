//! The output of a run during the run.

use futures::{AsyncRead, AsyncReadExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt};
use oz_api::harness::HarnessRun;
use oz_api::labels;
use oz_runs::pod::RUN_LABEL;
use oz_runs::reserved::{AGENT, RUNTIME};

use super::RunError;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// A container of a run's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// The agent.
    Agent,
    /// The reader of the agent's output.
    Runtime,
}

impl Container {
    const fn name(self) -> &'static str {
        match self {
            Self::Agent => AGENT,
            Self::Runtime => RUNTIME,
        }
    }
}

/// Opens the output of one container of a run's newest pod.
///
/// # Errors
/// The run has no pod, or its output cannot be read.
pub async fn output(
    cluster: &Cluster,
    run: &HarnessRun,
    container: Container,
    follow: bool,
) -> Result<impl AsyncRead, RunError> {
    let pods: Api<Pod> = cluster.api();
    let name = run.name_any();
    let selector = format!("{RUN_LABEL}={}", labels::value(&name));
    let parameters = ListParams::default().labels(&selector);
    let found = cluster.answer(pods.list(&parameters)).await?.items;
    let job = run
        .status
        .as_ref()
        .and_then(|status| status.job_name.as_ref());
    let job = job.unwrap_or(&name);
    // Other users may set the label on their pods, too.
    let is_its = |pod: &&Pod| {
        let mut owners = pod.owner_references().iter();
        owners.any(|owner| owner.kind == "Job" && &owner.name == job)
    };
    let newest = found.iter().filter(is_its);
    let newest = newest.max_by_key(|pod| pod.creation_timestamp().map(|time| time.0));
    let Some(pod) = newest else {
        return Err(RunError::NoPod { run: name });
    };
    let pod = pod.name_any();
    let parameters = LogParams {
        container: Some(container.name().to_owned()),
        follow,
        ..LogParams::default()
    };
    let opened = pods.log_stream(&pod, &parameters).await;
    Ok(opened.map_err(|error| {
        Failure::from(error).during(&format!("failed to read the logs of pod {pod}"))
    })?)
}

/// Passes a stream to `each`, piece by piece, until the stream ends or `each` returns false.
///
/// # Errors
/// The stream breaks.
pub async fn copy(
    stream: impl AsyncRead,
    mut each: impl FnMut(&[u8]) -> Result<bool>,
) -> Result<()> {
    let mut stream = std::pin::pin!(stream);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = stream.read(&mut buffer).await?;
        match buffer.get(..count).filter(|bytes| !bytes.is_empty()) {
            Some(bytes) if each(bytes)? => {}
            _ => return Ok(()),
        }
    }
}
