//! The identity of an object in the cache, from its metadata: an object that lacks a name or a UID has none, and is not
//! stored.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Namespace and name as one string, shared by the indexes.
pub(super) type Path = Arc<str>;
/// A UID, shared by the indexes as well.
pub(super) type Uid = Arc<str>;

/// Returns namespace and name as one string; neither contains a slash.
pub(crate) fn path(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// The identity of a stored object.
pub(super) struct Identity {
    pub(super) uid: Uid,
    pub(super) path: Path,
}

impl Identity {
    /// Returns the identity of an object; `None` if it lacks a name or a UID, so that it cannot be stored.
    pub(super) fn from_metadata(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self {
            uid: uid(metadata)?.into(),
            path: path_of(metadata)?,
        })
    }
}

/// Returns the path of an object; `None` if it has no name.
pub(super) fn path_of(metadata: &ObjectMeta) -> Option<Path> {
    let name = metadata.name.as_deref().filter(|name| !name.is_empty())?;
    Some(path(metadata.namespace.as_deref(), name).into())
}

/// Returns the resource version as a number. Resource versions grow within one kind: Kubernetes
/// promises that they compare as numbers (since 1.35, KEP-5504; true of every etcd-backed API
/// server before). Zero if this one is not a number.
pub(super) fn version(metadata: &ObjectMeta) -> u64 {
    metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

/// Returns the UID of an object; `None` if it is empty.
pub(super) fn uid(metadata: &ObjectMeta) -> Option<&str> {
    metadata.uid.as_deref().filter(|uid| !uid.is_empty())
}
