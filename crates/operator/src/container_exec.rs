//! The commands that the operator runs in containers: execs, for which it has the right because it
//! grants it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Api;
use kube::api::AttachParams;
use oz_core::access::pod_state;
use tokio::io::AsyncReadExt;

/// The maximum size of the output that is read, in bytes.
pub(crate) const ANSWER: u64 = 16 * 1024;

/// The reason why a command was not run.
#[derive(Debug)]
pub(crate) enum Unrun {
    /// The container cannot run it: it has no shell.
    Unable(String),
    /// The node did not respond, or another failure occurred that may be temporary.
    Unreached(String),
}

/// The time limits of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimit {
    /// The maximum time until it runs, and then between two pieces of its output.
    pub(crate) silence: Duration,
    /// The maximum total time.
    pub(crate) whole: Duration,
}

/// Runs `command` in a container and returns its standard output.
pub(crate) async fn run(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
    command: Vec<String>,
    timeout: Duration,
) -> Result<String, Unrun> {
    let mut answer = Vec::new();
    let limit = TimeLimit {
        silence: timeout,
        whole: timeout,
    };
    run_into(pods, pod, container, command, limit, &mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Runs a command like [`run`], for a command with output that is useful before its end.
pub(crate) async fn run_into(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
    command: Vec<String>,
    limit: TimeLimit,
    answer: &mut Vec<u8>,
) -> Result<(), Unrun> {
    let TimeLimit { silence, whole } = limit;
    let ran = async {
        let parameters = AttachParams::default()
            .container(container)
            .stdin(false)
            .stdout(true)
            .stderr(false);
        let mut process = within(silence, pods.exec(pod, command, &parameters))
            .await?
            .map_err(|error| Unrun::Unreached(error.to_string()))?;
        if let Some(stdout) = process.stdout() {
            let mut stdout = stdout.take(ANSWER);
            while let Ok(1..) = within(silence, stdout.read_buf(answer)).await? {}
        }
        let status = async {
            let status = match process.take_status() {
                Some(status) => status.await,
                None => None,
            };
            let _ = process.join().await;
            status
        };
        let status = within(silence, status).await?;
        if let Some(status) = status
            && status.status.as_deref() == Some("Failure")
            && answer.is_empty()
        {
            return Err(unrun(status));
        }
        Ok(())
    };
    within(whole, ran).await?
}

async fn within<T>(timeout: Duration, what: impl Future<Output = T>) -> Result<T, Unrun> {
    let answer = tokio::time::timeout(timeout, what).await;
    answer.map_err(|_| Unrun::Unreached(format!("no response within {timeout:?}")))
}

/// Returns the reason why a command that the node received did not run. Some runtimes set a code;
/// most report only in words that there is no shell. Unknown words mean another failure: the
/// operator retries the command and reports the result, instead of giving up a container that may
/// have sessions.
fn unrun(status: Status) -> Unrun {
    let message = status.message.unwrap_or_default();
    let mut causes = status
        .details
        .into_iter()
        .filter_map(|details| details.causes)
        .flatten();
    let code = causes.find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = code.and_then(|cause| cause.message);
    let words = [
        "no such file or directory",
        "executable file not found",
        "permission denied",
        "exec format error",
    ];
    let lower = message.to_lowercase();
    let cannot = matches!(code.as_deref(), Some("126" | "127"))
        || code.is_none() && words.iter().any(|word| lower.contains(word));
    if cannot {
        Unrun::Unable(message)
    } else {
        Unrun::Unreached(message)
    }
}

/// Returns all containers of the pod that are running, including ephemeral ones.
pub(crate) fn running(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod_state::containers(pod).filter(|one| {
        let state = one.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_is_given_up_only_where_the_runtime_says_that_there_is_no_shell() {
        let started = "error executing command in container: failed to exec in container: failed to start exec";
        let containerd = format!(
            "{started} \"a1\": OCI runtime exec failed: exec failed: unable to start container process: \
             exec: \"/bin/sh\": stat /bin/sh: no such file or directory: unknown"
        );
        let forbidden = format!("{started} \"a1\": exec: \"/bin/sh\": permission denied: unknown");
        let crio = "error executing command in container: executable file `/bin/sh` not found: No such file or directory";
        let busy = format!("{started} \"a1\": context deadline exceeded");
        for (code, message, unable) in [
            (None, containerd.as_str(), true),
            (None, forbidden.as_str(), true),
            (None, crio, true),
            (Some("127"), "command terminated with exit code 127", true),
            (Some("126"), "command terminated with exit code 126", true),
            // Another code comes from the script itself, regardless of its message.
            (Some("1"), "no such file or directory", false),
            (Some("137"), "command terminated with exit code 137", false),
            (None, busy.as_str(), false),
            (None, "container not found (\"app\")", false),
            (None, "", false),
        ] {
            let causes = code.map(|code| json!([{ "reason": "ExitCode", "message": code }]));
            let status = serde_json::from_value(json!({
                "status": "Failure", "message": message, "details": { "causes": causes },
            }));
            let why = unrun(status.unwrap());
            assert_eq!(
                matches!(why, Unrun::Unable(_)),
                unable,
                "{code:?} {message}"
            );
        }
    }
}
