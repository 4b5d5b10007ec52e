//! Using the access to a pod: commands in its containers, its logs and its ports.

mod ending;

use std::time::Duration;

use futures::AsyncBufRead;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess, LogParams};
use oz_core::mutate::DEFAULT_CONTAINER;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

pub use self::ending::{EndingError, ending};
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// The maximum time until a binding reaches the API server's authorizer.
const EFFECTIVE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// The number of bytes that each stream of a command holds.
const BUFFER: usize = 64 * 1024;

/// A command to run in a container.
pub struct Command {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// True if the command runs on a terminal. Input must then be a terminal: the end of input, which only another kind
    /// of file has, hangs up the terminal in the container, and the later output of the command is lost.
    pub tty: bool,
    /// True if the command gets input.
    pub stdin: bool,
}

/// Opens a command in a container, or in the main container of the pod.
///
/// # Errors
/// The API server or the pod refuses.
pub async fn exec(
    cluster: &Cluster,
    pod: &str,
    container: Option<&str>,
    command: &Command,
) -> Result<AttachedProcess> {
    let pods: Api<Pod> = cluster.api();
    let failed = format!("failed to open a session in pod {pod}");
    let mut parameters = AttachParams {
        container: container.map(str::to_owned),
        stdin: command.stdin,
        stdout: true,
        // A terminal has both in one stream.
        stderr: !command.tty,
        tty: command.tty,
        max_stdin_buf_size: Some(BUFFER),
        max_stdout_buf_size: Some(BUFFER),
        max_stderr_buf_size: Some(BUFFER),
    };
    let opened = once_effective(async || pods.exec(pod, &command.words, &parameters).await);
    match opened.await {
        Err(failure) if wants_container(&failure) => {
            parameters.container = Some(main_container(&pods, pod).await?);
            let answer = pods.exec(pod, &command.words, &parameters).await;
            answer.map_err(|error| Failure::from(error).during(&failed))
        }
        opened => opened.map_err(|failure| failure.during(&failed)),
    }
}

/// Opens the log of a container, or of the main container of the pod.
///
/// # Errors
/// The API server or the pod refuses.
pub async fn logs(
    cluster: &Cluster,
    pod: &str,
    mut parameters: LogParams,
) -> Result<impl AsyncBufRead + use<>> {
    let pods: Api<Pod> = cluster.api();
    let failed = format!("failed to read the logs of pod {pod}");
    let opened = once_effective(async || pods.log_stream(pod, &parameters).await);
    match opened.await {
        Err(failure) if wants_container(&failure) => {
            parameters.container = Some(main_container(&pods, pod).await?);
            let answer = pods.log_stream(pod, &parameters).await;
            answer.map_err(|error| Failure::from(error).during(&failed))
        }
        opened => opened.map_err(|failure| failure.during(&failed)),
    }
}

/// Connects a stream to a port of a pod, until either side disconnects.
///
/// # Errors
/// The API server or the pod refuses.
pub async fn forward(
    cluster: &Cluster,
    pod: &str,
    port: u16,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<()> {
    let pods: Api<Pod> = cluster.api();
    let failed = format!("failed to connect to port {port} of pod {pod}");
    let opened = once_effective(async || pods.portforward(pod, &[port]).await);
    let mut forwarder = opened.await.map_err(|failure| failure.during(&failed))?;
    let refused = forwarder.take_error(port);
    if let Some(mut inside) = forwarder.take_stream(port) {
        // Either side may simply disconnect.
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut inside).await;
    }
    forwarder.abort();
    let Some(refused) = refused else {
        return Ok(());
    };
    match refused.await {
        Some(why) if !why.trim().is_empty() => {
            Err(Failure::new(format!("{failed}: {}", why.trim())))
        }
        _ => Ok(()),
    }
}

/// Checks whether the pod has several containers, and the API server does not choose one.
fn wants_container(failure: &Failure) -> bool {
    failure.message().contains("container name must be")
}

/// Retries an operation until its grant is effective. The binding exists when a request is ready, but the API server's
/// authorizer learns of it from a separate watch: until then a denial is not final.
async fn once_effective<T>(mut attempt: impl AsyncFnMut() -> kube::Result<T>) -> Result<T> {
    let deadline = Instant::now() + EFFECTIVE;
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt().await {
            Err(kube::Error::Api(status))
                if status.code == 403
                    && status.message.contains(" cannot ")
                    && Instant::now() < deadline =>
            {
                tokio::time::sleep(pause).await;
                pause = (pause * 3 / 2).min(LONGEST_PAUSE);
            }
            answer => return Ok(answer?),
        }
    }
}

/// Reads the default container of a pod.
async fn main_container(pods: &Api<Pod>, name: &str) -> Result<String> {
    let pod = pods.get(name).await?;
    default_container(&pod)
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(format!("pod {name} has no container")))
}

/// Returns the default container, as kubectl chooses it: the one that the annotation names, if the pod has it, or the
/// first.
fn default_container(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.iter().flatten();
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let containers = spec.containers.iter().chain(init).map(|one| &one.name);
    let mut names = containers.chain(ephemeral.map(|one| &one.name));
    let annotations = pod.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(DEFAULT_CONTAINER))
        .filter(|annotated| names.any(|name| name == *annotated))
        .or(spec.containers.first().map(|one| &one.name))
        .map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn default_container_is_the_annotated_one_that_exists_or_the_first() {
        for (annotated, expected) in [
            (None, "app"),
            (Some("app"), "app"),
            (Some("proxy"), "proxy"),
            (Some("mesh"), "mesh"),
            (Some("debugger"), "debugger"),
            (Some("injected"), "app"),
            (Some(""), "app"),
        ] {
            let annotations = annotated.map(|name| json!({DEFAULT_CONTAINER: name}));
            let pod = json!({
                "metadata": {"annotations": annotations},
                "spec": {
                    "containers": [{"name": "app"}, {"name": "proxy"}],
                    "initContainers": [{"name": "mesh", "restartPolicy": "Always"}],
                    "ephemeralContainers": [{"name": "debugger"}],
                },
            });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(default_container(&pod), Some(expected), "{annotated:?}");
        }
    }

    #[test]
    fn pod_without_spec_has_no_default_container() {
        assert_eq!(default_container(&Pod::default()), None);
    }
}
