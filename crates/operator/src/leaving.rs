//! Whether a request is being deleted, by the API server itself. Watches of different kinds do not keep
//! in step: what the garbage collector did may be seen before the deletion that it follows from.

use kube::{Resource, ResourceExt};
use oz_core::access::kind::{self, Kind, ObservedOf};
use oz_core::controller::Live;
use oz_engine::Cx;

/// Whether what looks like meddling with a grant is its request being gone, or on its way out. Without
/// an answer it is taken to stay.
pub(crate) async fn is_leaving<K: Kind>(
    cx: &Cx,
    controller: &K,
    request: &K::Request,
    observed: &ObservedOf<K>,
    live: &[Live],
) -> bool {
    if !kind::drifted(controller, cx.now(), request, observed, live) {
        return false;
    }
    let namespace = request.namespace();
    let found = cx
        .get::<K::Request>(namespace.as_deref(), &request.name_any())
        .await;
    found.is_ok_and(|found| {
        found.is_none_or(|found| {
            found.uid() != request.uid() || found.meta().deletion_timestamp.is_some()
        })
    })
}
