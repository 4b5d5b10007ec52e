//! The sources of recordings: the gate, or a directory with the data that the gate stored.

use std::path::{Path, PathBuf};

use http::Method;
use oz_gating::recording::{Listing, Part, PartName, SessionKey, Stored};
use oz_gating::recordings;

use super::error::{PartError, SessionError};
use super::gate::{self, MAX_ANSWER};
use super::identities::Identities;
use crate::cluster::Cluster;

/// The maximum number of entries that are read of a directory.
const MAX_ENTRIES: usize = 100_000;

type Result<T> = std::result::Result<T, SessionError>;

/// A source of recordings, see the module.
pub enum Source {
    /// The gate of a cluster.
    Gate(Cluster),
    /// A directory.
    Directory(PathBuf),
}

impl Source {
    /// Returns the stored data of a request's sessions.
    ///
    /// # Errors
    /// The source cannot be read.
    pub async fn listing(&self, namespace: &str, request: &str) -> Result<Listing> {
        match self {
            Self::Gate(cluster) => {
                let bytes = get(cluster, &recordings(namespace, request)).await?;
                serde_json::from_slice(&bytes).map_err(|error| SessionError::Recordings {
                    request: request.to_owned(),
                    error,
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
                Ok(Listing::from_parts(names))
            }
        }
    }

    /// Returns the names of the parts of a session, in their order, as the source lists them.
    pub(super) async fn names(&self, key: &SessionKey) -> Result<Vec<String>> {
        let listing = self.listing(&key.namespace, &key.request).await?;
        let session = key.to_string();
        let mut sessions = listing.sessions.into_iter();
        let found = sessions.find(|one| one.session == session);
        Ok(found.into_iter().flat_map(|one| one.parts).collect())
    }

    /// Returns the parts of a session, in their order, as they are stored; with the heads in those that can be read.
    ///
    /// # Errors
    /// The source cannot be read.
    pub async fn parts(&self, key: &SessionKey, identities: &Identities) -> Result<Vec<Stored>> {
        let mut parts = Vec::new();
        for name in self.names(key).await? {
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
    ///
    /// # Errors
    /// The source cannot be read.
    pub async fn part(&self, name: &PartName) -> Result<Vec<u8>> {
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
                std::fs::read(&path).map_err(|error| unread(&path, error))
            }
        }
    }
}

/// Returns the content of a part.
///
/// # Errors
/// The part is damaged, or encrypted to others.
pub fn unpacked(name: &PartName, bytes: &[u8], identities: &Identities) -> Result<Part> {
    let lines = identities.lines(name, bytes, MAX_ANSWER)?;
    Part::read(&lines).map_err(|error| SessionError::Part {
        name: Box::new(name.clone()),
        error: PartError::Lines(error.to_string()),
    })
}

async fn get(cluster: &Cluster, path: &str) -> Result<Vec<u8>> {
    let failed = |error| SessionError::read(path, error);
    let answer = gate::send(cluster, Method::GET, path).await;
    gate::read(answer.map_err(failed)?).await.map_err(failed)
}

pub(super) fn entries(path: &Path) -> Result<Vec<String>> {
    let read = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| unread(path, error))?,
    };
    let mut names = Vec::new();
    for entry in read.take(MAX_ENTRIES) {
        let entry = entry.map_err(|error| unread(path, error))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

fn unread(path: &Path, error: std::io::Error) -> SessionError {
    SessionError::File {
        path: path.to_owned(),
        error,
    }
}
