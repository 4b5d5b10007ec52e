//! The pod that reads a transcript: its creation, the wait for it by a watch, the reading, its deletion.

use std::time::Duration;

use futures::StreamExt as _;
use futures::io::{AsyncReadExt as _, Cursor};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, LogParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use oz_api::IdentityError;
use oz_api::harness::HarnessRun;
use oz_runs::queue::workspace_of;
use oz_runs::reader::{self, CONTAINER, Program, Unreadable};

use super::output::copy;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// The timeout of the API server for the deletion of the pod at the end.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The parameters of reading one file of a transcript.
#[derive(Clone, Debug)]
pub struct Reading<'a> {
    /// The file, below the run's folder.
    pub file: &'a str,
    /// The deadline of the pod, from its start.
    pub within: Duration,
    /// An image with `cat` to read by; by default, oz's own.
    pub image: Option<&'a str>,
    /// The beginnings of images that need no digest.
    pub allowed_prefixes: &'a [String],
}

/// The reason why a transcript cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// The file or the image is not one to read.
    #[error(transparent)]
    Refused(#[from] Unreadable),
    /// The run had no image of oz.
    #[error(
        "the run's status names no image of oz to read with (ozImage): it never began, or another \
            system ran it"
    )]
    NoImage,
    /// The run has neither a workspace nor a name.
    #[error(transparent)]
    Nameless(#[from] IdentityError),
    /// The pod cannot be created from its definition.
    #[error("failed to create the reader's pod: {0}")]
    Malformed(serde_json::Error),
    /// The kubelet cannot create the container.
    #[error(
        "pod {pod} cannot read the transcript: {} ({reason})",
        message.as_deref().unwrap_or("there is no message")
    )]
    Hopeless {
        /// The pod.
        pod: String,
        /// The message of the kubelet.
        message: Option<String>,
        /// The reason of the kubelet.
        reason: String,
    },
    /// Another user deleted the pod.
    #[error("pod {pod} was deleted before it had read the file")]
    Deleted {
        /// The pod.
        pod: String,
    },
    /// The pod failed; its last line, if the log has no more than an error message.
    #[error("pod {pod} failed to read the file: {said}")]
    Failed {
        /// The pod.
        pod: String,
        /// The reason.
        said: String,
    },
    /// The API server does not answer as it should.
    #[error(transparent)]
    Cluster(#[from] Failure),
}

impl From<kube::Error> for TranscriptError {
    fn from(error: kube::Error) -> Self {
        Self::Cluster(error.into())
    }
}

impl From<std::io::Error> for TranscriptError {
    fn from(error: std::io::Error) -> Self {
        Self::Cluster(error.into())
    }
}

impl From<TranscriptError> for Failure {
    fn from(error: TranscriptError) -> Self {
        let next = match error {
            TranscriptError::Cluster(failure) => return failure,
            TranscriptError::NoImage => {
                "name an image that contains cat with --reader-image, as NAME@sha256:DIGEST"
            }
            TranscriptError::Hopeless { .. } => {
                "its workspace may be deleted, or the run may never have begun: `ozctl run status`"
            }
            TranscriptError::Failed { .. } => {
                "`ozctl run logs --help` lists the files of a transcript"
            }
            error => return Self::new(error.to_string()),
        };
        Self::new(error.to_string()).next(next)
    }
}

/// A pod that reads one file of the transcript of a run that has ended.
pub struct TranscriptReader<'a> {
    cluster: &'a Cluster,
    pods: Api<Pod>,
    pod: Pod,
}

impl<'a> TranscriptReader<'a> {
    /// Creates the pod.
    ///
    /// # Errors
    /// The file or the image is not one to read, or the user may not create pods.
    pub async fn create(
        cluster: &'a Cluster,
        run: &HarnessRun,
        reading: &Reading<'_>,
    ) -> Result<Self, TranscriptError> {
        let pod = definition(cluster, run, reading)?;
        let pods: Api<Pod> = cluster.api();
        let parameters = PostParams::default();
        let created = pods.create(&parameters, &pod);
        let pod = cluster.answer(created).await.map_err(|failure| {
            let name = run.name_any();
            failure.during(&format!("failed to create the pod that reads run {name}"))
        })?;
        Ok(Self { cluster, pods, pod })
    }

    /// Returns the name of the pod.
    #[must_use]
    pub fn name(&self) -> String {
        self.pod.name_any()
    }

    /// Waits until the pod runs, and passes its output to `each`, piece by piece, until `each` returns false. The error
    /// message of a failed reader is in the same log, so the beginning is passed on once more output follows, or once
    /// the reader has succeeded.
    ///
    /// # Errors
    /// The pod cannot read the file.
    pub async fn read(
        &self,
        mut each: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<(), TranscriptError> {
        const BEGINNING: u64 = 4096;
        let (pods, reader) = (&self.pods, self.name());
        let began = &["Running", "Succeeded", "Failed"];
        let pod = until(pods, self.pod.clone(), began).await?;
        let parameters = LogParams {
            container: Some(CONTAINER.to_owned()),
            follow: phase(&pod) == Some("Running"),
            ..LogParams::default()
        };
        let failed = format!("failed to read the log of pod {reader}");
        let stream = pods.log_stream(&reader, &parameters).await;
        let stream = stream.map_err(|error| Failure::from(error).during(&failed))?;
        let mut stream = std::pin::pin!(stream);
        let mut beginning = Vec::new();
        let mut first = stream.as_mut().take(BEGINNING);
        first.read_to_end(&mut beginning).await?;
        let is_all = beginning.len() < BEGINNING as usize;
        if !is_all {
            copy(Cursor::new(&beginning).chain(stream), &mut each).await?;
        }
        let pod = until(pods, pod, &["Succeeded", "Failed"]).await?;
        if phase(&pod) == Some("Failed") {
            let log = String::from_utf8_lossy(&beginning);
            let said = match is_all {
                true => log.lines().last().unwrap_or("it says nothing"),
                false => "the output is incomplete",
            };
            let said = said.to_owned();
            return Err(TranscriptError::Failed { pod: reader, said });
        }
        if is_all {
            copy(Cursor::new(&beginning), each).await?;
        }
        Ok(())
    }

    /// Deletes the pod.
    ///
    /// # Errors
    /// The pod may still be there.
    pub async fn delete(self) -> Result<(), TranscriptError> {
        let (reader, parameters) = (self.name(), DeleteParams::default());
        let deleting = self.cluster.answer(self.pods.delete(&reader, &parameters));
        let failure = match tokio::time::timeout(ANSWERS_WITHIN, deleting).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(failure)) if failure.is_not_found() => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::new("the API server does not respond"),
        };
        let failure = failure
            .during(&format!("failed to delete pod {reader} after its read"))
            .next(format!(
                "`kubectl delete pod {reader} -n {}`",
                self.cluster.namespace
            ));
        Err(failure.into())
    }
}

/// Returns the definition of the pod that reads.
fn definition(
    cluster: &Cluster,
    run: &HarnessRun,
    reading: &Reading<'_>,
) -> Result<Pod, TranscriptError> {
    let program = match reading.image {
        Some(image) => {
            reader::allowed(image, reading.allowed_prefixes)?;
            Program::Cat(image)
        }
        None => {
            let status = run.status.as_ref();
            let image = status.and_then(|status| status.oz_image.as_deref());
            Program::Own(image.ok_or(TranscriptError::NoImage)?)
        }
    };
    let name = run.name_any();
    let workspace = workspace_of(run).ok_or(IdentityError::Nameless)?;
    let pod = reader::pod(&reader::Reading {
        namespace: &cluster.namespace,
        run: &name,
        workspace: &workspace,
        file: reading.file,
        program,
        deadline_seconds: i64::try_from(reading.within.as_secs()).unwrap_or(i64::MAX),
    })?;
    serde_json::from_value(pod).map_err(TranscriptError::Malformed)
}

/// Waits until the pod is in one of these phases.
async fn until(pods: &Api<Pod>, mut pod: Pod, phases: &[&str]) -> Result<Pod, TranscriptError> {
    /// The pause after a broken watch.
    const WATCH_AGAIN: Duration = Duration::from_millis(200);
    let name = pod.name_any();
    let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
    let is_there = |pod: &Pod| phase(pod).is_some_and(|phase| phases.contains(&phase));
    loop {
        if is_there(&pod) {
            return Ok(pod);
        }
        hopeful(&pod)?;
        // Without a version, a watch begins with the pod as it is.
        let version = pod.resource_version().unwrap_or_default();
        let events = pods.watch(&parameters, &version).await?;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Added(next) | WatchEvent::Modified(next)) => {
                    pod = next;
                    if is_there(&pod) {
                        return Ok(pod);
                    }
                    hopeful(&pod)?;
                }
                Ok(WatchEvent::Deleted(_)) => return Err(TranscriptError::Deleted { pod: name }),
                Ok(WatchEvent::Bookmark(_)) => {}
                Ok(WatchEvent::Error(_)) | Err(_) => break,
            }
        }
        tokio::time::sleep(WATCH_AGAIN).await;
        pod = pods.get(&name).await?;
    }
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// Checks whether a pod may still begin.
///
/// # Errors
/// Returns an error if it never will: the kubelet cannot create its container.
fn hopeful(pod: &Pod) -> Result<(), TranscriptError> {
    const HOPELESS: [&str; 4] = [
        "CreateContainerConfigError",
        "CreateContainerError",
        "InvalidImageName",
        "ImagePullBackOff",
    ];
    let status = pod.status.iter();
    let containers = status.flat_map(|status| status.container_statuses.iter().flatten());
    let waiting = containers.filter_map(|one| one.state.as_ref()?.waiting.as_ref());
    let mut reasons = waiting.filter_map(|one| Some((one.reason.as_ref()?, &one.message)));
    match reasons.find(|(reason, _)| HOPELESS.contains(&reason.as_str())) {
        None => Ok(()),
        Some((reason, message)) => Err(TranscriptError::Hopeless {
            pod: pod.name_any(),
            message: message.clone(),
            reason: reason.clone(),
        }),
    }
}
