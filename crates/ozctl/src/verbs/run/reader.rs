//! The pod that reads a transcript: its creation, the wait for it by a watch, the reading, its
//! deletion.

use std::time::Duration;

use clap::Args;
use futures::StreamExt as _;
use futures::io::{AsyncReadExt as _, Cursor};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, LogParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use oz_api::harness::HarnessRun;
use oz_runs::queue::workspace_of;
use oz_runs::reader::{self, CONTAINER, Program, Reading};

use super::logs::copy;
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::verbs::go_duration;

/// The timeout of the API server for the deletion of the pod at the end.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How a transcript is read.
#[derive(Args)]
pub(super) struct ReaderFlags {
    /// How long reading a transcript may take
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    timeout: String,
    /// Leave the pod that reads it
    #[arg(long)]
    keep_reader: bool,
    /// An image with cat in it to read by, as NAME@sha256:DIGEST [default: oz's own]
    #[arg(long, value_name = "IMAGE")]
    reader_image: Option<String>,
    /// Images that begin so need no digest; may be repeated
    #[arg(long, value_name = "PREFIX")]
    allow_reader_image_prefix: Vec<String>,
}

/// Shows one file of the transcript of a run that is over.
pub(super) async fn read(
    context: &Context,
    cluster: &Cluster,
    run: &HarnessRun,
    file: &str,
    flags: &ReaderFlags,
) -> Result<Exit> {
    let text = &flags.timeout;
    let within = go_duration(text)
        .ok_or_else(|| Failure::new(format!("--timeout: {text} is no duration, such as 2m")))?;
    let refused = |error: reader::Unreadable| Failure::new(error.to_string());
    let program = match &flags.reader_image {
        Some(image) => {
            reader::allowed(image, &flags.allow_reader_image_prefix).map_err(refused)?;
            Program::Cat(image)
        }
        None => {
            let status = run.status.as_ref();
            let image = status.and_then(|status| status.oz_image.as_deref());
            Program::Own(image.ok_or_else(|| {
                Failure::new("the run's status names no image of oz's to read by (ozImage): it never began, or another system ran it")
                    .next("name an image with cat in it by --reader-image, as NAME@sha256:DIGEST")
            })?)
        }
    };
    let name = run.name_any();
    let workspace = workspace_of(run)
        .ok_or_else(|| Failure::new("the run has neither a workspace nor a name"))?;
    let reading = Reading {
        namespace: &cluster.namespace,
        run: &name,
        workspace: &workspace,
        file,
        program,
        deadline_seconds: i64::try_from(within.as_secs()).unwrap_or(i64::MAX),
    };
    let pod = reader::pod(&reading).map_err(refused)?;
    let pod: Pod = serde_json::from_value(pod)
        .map_err(|error| Failure::new(format!("failed to make the reader's pod: {error}")))?;
    let pods: Api<Pod> = cluster.api();
    let mut interrupts = Interrupts::new()?;
    let created = cluster
        .answer(pods.create(&PostParams::default(), &pod))
        .await;
    let created = created.map_err(|failure| {
        failure.during(&format!("failed to create the pod that reads run {name}"))
    })?;
    let reader = created.name_any();
    let done = tokio::select! {
        done = shown(context, &pods, created) => done.map(|()| Exit::SUCCESS),
        exit = interrupts.next() => Ok(exit),
        () = tokio::time::sleep(within) => Err(Failure::new(format!(
            "pod {reader} did not read {file} of run {name} within {text}"
        ))
        .next(format!(
            "give it longer with --timeout; --keep-reader leaves the pod: `kubectl describe pod {reader} -n {}`",
            cluster.namespace
        ))),
    };
    if flags.keep_reader {
        context.say(&format!("Pod {reader} is left, as --keep-reader says."));
        return done;
    }
    let parameters = DeleteParams::default();
    let deleting = cluster.answer(pods.delete(&reader, &parameters));
    let deleted = match tokio::time::timeout(ANSWERS_WITHIN, deleting).await {
        Ok(Err(failure)) if failure.is_not_found() => Ok(()),
        Ok(answer) => answer.map(drop),
        Err(_) => Err(Failure::new("the API server does not answer")),
    };
    let deleted = deleted.map_err(|failure| {
        failure
            .during(&format!("failed to delete pod {reader}, which has read"))
            .next(format!(
                "`kubectl delete pod {reader} -n {}`",
                cluster.namespace
            ))
    });
    let exit = done?;
    deleted.map(|()| exit)
}

/// Waits until the reader runs, and shows its output. The error message of a failed reader is in
/// the same log, so the beginning is shown once more output follows, or once the reader has
/// succeeded.
async fn shown(context: &Context, pods: &Api<Pod>, created: Pod) -> Result<()> {
    const BEGINNING: u64 = 4096;
    let reader = created.name_any();
    let pod = until(pods, created, &["Running", "Succeeded", "Failed"]).await?;
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
        copy(context, Cursor::new(&beginning).chain(stream)).await?;
    }
    let pod = until(pods, pod, &["Succeeded", "Failed"]).await?;
    if phase(&pod) == Some("Failed") {
        let log = String::from_utf8_lossy(&beginning);
        let said = match is_all {
            true => log.lines().last().unwrap_or("it says nothing"),
            false => "what is shown of it is not all",
        };
        return Err(
            Failure::new(format!("pod {reader} failed to read the file: {said}"))
                .next("`ozctl run logs --help` says which files a transcript has"),
        );
    }
    match is_all {
        true => copy(context, Cursor::new(&beginning)).await,
        false => Ok(()),
    }
}

/// Waits until the pod is in one of these phases.
async fn until(pods: &Api<Pod>, mut pod: Pod, phases: &[&str]) -> Result<Pod> {
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
                Ok(WatchEvent::Deleted(_)) => {
                    return Err(Failure::new(format!(
                        "pod {name} was deleted before it had read the file"
                    )));
                }
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
fn hopeful(pod: &Pod) -> Result<()> {
    const HOPELESS: [&str; 4] = [
        "CreateContainerConfigError",
        "CreateContainerError",
        "InvalidImageName",
        "ImagePullBackOff",
    ];
    let status = pod.status.iter();
    let containers = status.flat_map(|status| status.container_statuses.iter().flatten());
    let mut waiting = containers.filter_map(|one| one.state.as_ref()?.waiting.as_ref());
    let hopeless = waiting.find(|one| {
        let reason = one.reason.as_deref().unwrap_or_default();
        HOPELESS.contains(&reason)
    });
    match hopeless {
        None => Ok(()),
        Some(why) => Err(Failure::new(format!(
            "pod {} cannot read the transcript: {} ({})",
            pod.name_any(),
            why.message.as_deref().unwrap_or("no more is said"),
            why.reason.as_deref().unwrap_or_default(),
        ))
        .next("its workspace may be gone, or the run may never have begun: `ozctl run status`")),
    }
}
