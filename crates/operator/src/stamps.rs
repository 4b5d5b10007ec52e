//! Whether a stamp is on one request only.

use kube::{Resource, ResourceExt};
use oz_core::access::stamp;
use oz_engine::Store;

/// The name of another request that carries the same stamp: a stamp is for one request, and which
/// of two came first cannot be told within a second.
pub(crate) fn same_stamp<R>(requests: &Store<R>, request: &R) -> Option<String>
where
    R: Resource + Send + Sync + 'static,
{
    let stamp = stamp::of(request.meta())?;
    requests
        .select(|other| stamp::of(other.meta()) == Some(stamp) && other.uid() != request.uid())
        .first()
        .map(|other| other.name_any())
}
