//! The pod that reads the transcript of a finished run: it mounts one folder of the workspace read-only, writes one
//! file of it to its log, and has no token and no rights.

use oz_core::confine::security::{confined, footprint, unattended};
use serde_json::{Value, json};

use super::pod::claim_name;
use super::reserved;

/// Label: name of the run with the transcript that a pod reads.
pub const READER_LABEL: &str = "paddock.dev/reader-of";
/// The container.
pub const CONTAINER: &str = "reader";
/// The mount path of the transcript.
const MOUNT_PATH: &str = "/transcript";
/// The file with the events of a run.
pub const EVENTS_FILE: &str = "events.jsonl";
/// The file with the output of the agent.
pub const RAW_FILE: &str = "raw.jsonl";
/// The file with the result of a run.
pub const RESULT_FILE: &str = "result.json";

/// The program that writes the file to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program<'a> {
    /// The image of oz: `/oz-harness cat -- FILE`.
    Own(&'a str),
    /// Another image: `cat -- FILE`.
    Cat(&'a str),
}

/// The file to read, and the pod that reads it.
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
    /// The image and its program.
    pub program: Program<'a>,
    /// The deadline of the pod, in seconds.
    pub deadline_seconds: i64,
}

/// The reason why a file cannot be read, or not with an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The file is not part of the transcript.
    #[error(
        "{0:?} is not a file of a transcript: name one below the run's folder, without .. and without / at its start"
    )]
    File(String),
    /// The name of the run cannot be the name of a folder.
    #[error("{0:?} is not a name of a run")]
    Run(String),
    /// The image is not pinned by a digest and could change.
    #[error(
        "{0} is not pinned by a digest: write NAME@sha256:DIGEST, or allow it by --allow-reader-image-prefix"
    )]
    Image(String),
}

/// Checks whether another image may read a transcript: it is pinned by a digest, or begins with one of `prefixes`.
///
/// # Errors
/// The image may not.
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

/// Creates the pod that writes one file of a transcript to its log.
///
/// # Errors
/// The file is outside the transcript.
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
    let spec = json!({
        "activeDeadlineSeconds": reading.deadline_seconds.max(1),
        "containers": [{
            "name": CONTAINER,
            "image": image,
            "command": command,
            "resources": footprint("10m", "16Mi", "64Mi"),
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
    });
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": format!("{}-reader-", shortened(run)),
            "namespace": reading.namespace,
            "labels": {READER_LABEL: oz_api::labels::value(run)},
        },
        "spec": unattended(spec, 0, None),
    }))
}

/// Returns the prefix of a name that fits into a host name with the suffixes of oz and of the API server.
fn shortened(run: &str) -> &str {
    let end = run.char_indices().nth(48).map_or(run.len(), |(at, _)| at);
    run[..end].trim_end_matches(['.', '-'])
}
