//! The sources of recordings: the gate, or a directory with the data that the gate stored.

use std::path::{Path, PathBuf};

use http_body_util::BodyExt as _;
use kube::client::Body;
use oz_gating::recording::{Listing, Part, PartName, SessionKey, Stored};
use oz_gating::recordings;

use super::identity::Identities;
use crate::cluster::Cluster;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// The maximum size of a response, and of an unpacked part.
const MAX_PART: usize = 64 << 20;
/// The maximum number of entries that are read of a directory.
const MAX_ENTRIES: usize = 100_000;

/// A source of recordings, see the module.
pub(super) enum Source {
    /// The gate of a cluster.
    Gate(Cluster),
    /// A directory.
    Directory(PathBuf),
}

impl Source {
    pub(super) async fn new(context: &Context, from: Option<&Path>) -> Result<Self> {
        Ok(match from {
            Some(path) => Self::Directory(path.to_owned()),
            None => Self::Gate(context.cluster().await?),
        })
    }

    /// Returns the stored data of a request's sessions.
    pub(super) async fn listing(&self, namespace: &str, request: &str) -> Result<Listing> {
        match self {
            Self::Gate(cluster) => {
                let bytes = get(cluster, &recordings(namespace, request)).await?;
                serde_json::from_slice(&bytes).map_err(|error| {
                    Failure::new(format!(
                        "failed to read what the gate has of request {request}: {error}"
                    ))
                })
            }
            Self::Directory(path) => {
                let prefix = format!("{namespace}/{request}");
                let mut names = Vec::new();
                for session in entries(&path.join(&prefix))? {
                    let parts = entries(&path.join(&prefix).join(&session))?;
                    let parts = parts
                        .iter()
                        .map(|part| format!("{prefix}/{session}/{part}"));
                    names.extend(parts.filter_map(|name| PartName::read(&name)));
                }
                Ok(Listing::of(names))
            }
        }
    }

    /// Returns the parts of a session, in their order, as they are stored; with the content of
    /// those that can be read.
    pub(super) async fn parts(
        &self,
        key: &SessionKey,
        identities: &Identities,
    ) -> Result<Vec<Stored>> {
        let listing = self.listing(&key.namespace, &key.request).await?;
        let session = key.to_string();
        let found = listing
            .sessions
            .into_iter()
            .find(|one| one.session == session);
        let mut parts = Vec::new();
        for name in found.map(|one| one.parts).unwrap_or_default() {
            let Some(name) = PartName::read(&name).filter(|name| name.session == *key) else {
                continue;
            };
            let bytes = self.part(&name).await?;
            let previous = unpacked(&name, &bytes, identities)
                .ok()
                .map(|part| part.header.oz.previous);
            parts.push(Stored {
                name,
                bytes,
                previous,
            });
        }
        Ok(parts)
    }

    /// Returns a part as it is stored.
    pub(super) async fn part(&self, name: &PartName) -> Result<Vec<u8>> {
        let key = &name.session;
        let path = name.to_string();
        match self {
            Self::Gate(cluster) => {
                let start = recordings(&key.namespace, &key.request);
                let rest = path.trim_start_matches(&format!("{}/{}/", key.namespace, key.request));
                get(cluster, &format!("{start}/{rest}")).await
            }
            Self::Directory(directory) => {
                let path = directory.join(path);
                std::fs::read(&path).map_err(|error| unread(&path, &error))
            }
        }
    }

    /// Returns the session of `REQUEST` (its last one) or `REQUEST/SESSION`.
    pub(super) async fn session(&self, namespace: &str, text: &str) -> Result<SessionKey> {
        let malformed = || {
            let message = format!("{text} names no session: write REQUEST, or REQUEST/SESSION");
            Failure::new(message).next("`ozctl sessions list` shows what there is")
        };
        if text.contains('/') {
            return SessionKey::read(&format!("{namespace}/{text}")).ok_or_else(malformed);
        }
        SessionKey::read(&format!("{namespace}/{text}/x")).ok_or_else(malformed)?;
        let listing = self.listing(namespace, text).await?;
        let last = listing
            .sessions
            .last()
            .and_then(|last| SessionKey::read(&last.session));
        last.ok_or_else(|| {
            let message = format!("nothing is recorded of request {text} in namespace {namespace}");
            Failure::new(message).next("`ozctl sessions list` shows which sessions there were")
        })
    }
}

/// Returns the content of a part.
pub(super) fn unpacked(name: &PartName, bytes: &[u8], identities: &Identities) -> Result<Part> {
    let lines = identities.lines(name, bytes, MAX_PART)?;
    Part::read(&lines).map_err(|why| Failure::new(format!("failed to read {name}: {why}")))
}

async fn get(cluster: &Cluster, path: &str) -> Result<Vec<u8>> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("failed to read {path}: {error}"));
    let request = http::Request::get(path).body(Body::empty());
    let request = request.map_err(|error| failed(&error))?;
    let answer = cluster.answer(cluster.client.send(request)).await?;
    let status = answer.status();
    let body = http_body_util::Limited::new(answer.into_body(), MAX_PART);
    let bytes = body
        .collect()
        .await
        .map_err(|error| failed(&error))?
        .to_bytes();
    if status.is_success() {
        return Ok(bytes.into());
    }
    let said: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let why = said["message"]
        .as_str()
        .map_or_else(|| status.to_string(), str::to_owned);
    Err(failed(&why)
        .next("reading recordings takes ClusterRole oz-recording-viewer in their namespace"))
}

fn entries(path: &Path) -> Result<Vec<String>> {
    let read = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| unread(path, &error))?,
    };
    let mut names = Vec::new();
    for entry in read.take(MAX_ENTRIES) {
        let entry = entry.map_err(|error| unread(path, &error))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

fn unread(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("failed to read {}: {error}", path.display()))
}
