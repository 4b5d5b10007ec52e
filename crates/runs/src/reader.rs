//! The pod by which the transcript of a run that is over is read: it sees one folder of the workspace, read-only,
//! writes one file of it to its log, and has no token and no rights.

use serde_json::{Value, json};

use super::overlay::confined;
use super::pod::claim_name;
use super::reserved;

/// Label: the run whose transcript a pod reads.
pub const READER_LABEL: &str = "paddock.dev/reader-of";
/// The container.
pub const CONTAINER: &str = "reader";
/// Where the transcript is mounted.
const MOUNT_PATH: &str = "/transcript";
/// The file with the events of a run.
pub const EVENTS_FILE: &str = "events.jsonl";
/// The file with what the agent wrote, as it wrote it.
pub const RAW_FILE: &str = "raw.jsonl";
/// The file with what came of a run.
pub const RESULT_FILE: &str = "result.json";

/// The program that writes the file out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program<'a> {
    /// Our own image: `/oz-harness cat -- FILE`.
    Own(&'a str),
    /// An image of others: `cat -- FILE`.
    Cat(&'a str),
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading<'a> {
    /// Namespace of the run.
    pub namespace: &'a str,
    /// Name of the run.
    pub run: &'a str,
    /// Name of its workspace.
    pub workspace: &'a str,
    /// The file, below the run's folder.
    pub file: &'a str,
    /// By which image.
    pub program: Program<'a>,
    /// After how many seconds it ends by itself.
    pub deadline_seconds: i64,
}

/// Why a file or an image cannot be read with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The file is none of the transcript.
    #[error(
        "{0:?} is no file of a transcript: name one below the run's folder, without .. and without / at its start"
    )]
    File(String),
    /// The run's name cannot be that of a folder.
    #[error("{0:?} is no name of a run")]
    Run(String),
    /// The image may change from one day to the next.
    #[error(
        "{0} is not pinned by a digest: write NAME@sha256:DIGEST, or allow it by --allow-reader-image-prefix"
    )]
    Image(String),
}

/// Whether an image of others may read: it is pinned by a digest, or begins with one of `prefixes`.
///
/// # Errors
/// That it may not.
pub fn allowed(image: &str, prefixes: &[String]) -> Result<(), Unreadable> {
    let digest = image.split_once("@sha256:").map(|(_, digest)| digest);
    let is_pinned = digest.is_some_and(|digest| {
        digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    let mut prefixes = prefixes.iter().filter(|prefix| !prefix.is_empty());
    match is_pinned || prefixes.any(|prefix| image.starts_with(prefix.as_str())) {
        true => Ok(()),
        false => Err(Unreadable::Image(image.to_owned())),
    }
}

/// The pod that writes one file of a transcript to its log.
///
/// # Errors
/// That the file lies outside of the transcript.
pub fn pod(reading: &Reading<'_>) -> Result<Value, Unreadable> {
    let file = reading.file;
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    if !file.split('/').all(is_part) || file.contains(['\0', '\n']) {
        return Err(Unreadable::File(file.to_owned()));
    }
    let run = reading.run;
    if !is_part(run) || run.contains('/') {
        return Err(Unreadable::Run(run.to_owned()));
    }
    let path = format!("{MOUNT_PATH}/{file}");
    let (image, command) = match &reading.program {
        Program::Own(image) => (image, json!(["/oz-harness", "cat", "--", path])),
        Program::Cat(image) => (image, json!(["cat", "--", path])),
    };
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": format!("{}-reader-", shortened(run)),
            "namespace": reading.namespace,
            "labels": {READER_LABEL: oz_api::labels::value(run)},
        },
        "spec": {
            "activeDeadlineSeconds": reading.deadline_seconds.max(1),
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": CONTAINER,
                "image": image,
                "command": command,
                "resources": {
                    "requests": {"cpu": "10m", "memory": "16Mi"},
                    "limits": {"memory": "64Mi"},
                },
                "securityContext": confined(reserved::AGENT_USER, true),
                "volumeMounts": [{
                    "name": reserved::WORKSPACE_VOLUME,
                    "mountPath": MOUNT_PATH,
                    "readOnly": true,
                    "subPath": format!(".paddock/runs/{run}"),
                }],
            }],
            "volumes": [{
                "name": reserved::WORKSPACE_VOLUME,
                "persistentVolumeClaim": {"claimName": claim_name(reading.workspace), "readOnly": true},
            }],
        },
    }))
}

/// So much of a name that the API server's letters and ours fit behind it in a host name.
fn shortened(run: &str) -> &str {
    let end = run.char_indices().nth(48).map_or(run.len(), |(at, _)| at);
    run[..end].trim_end_matches(['.', '-'])
}
