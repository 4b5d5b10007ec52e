//! Whether a request is being deleted, by the API server itself. Watches of different kinds do not keep
//! in step: what the garbage collector did may be seen before the deletion that it follows from.

use std::fmt::Debug;

use kube::{Resource, ResourceExt};
use oz_engine::Cx;
use serde::de::DeserializeOwned;

/// Whether the request is gone, or on its way out. Without an answer it is taken to stay.
pub(crate) async fn is_leaving<R>(cx: &Cx, request: &R) -> bool
where
    R: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let namespace = request.namespace();
    let found = cx.get::<R>(namespace.as_deref(), &request.name_any()).await;
    found.is_ok_and(|found| {
        found.is_none_or(|found| {
            found.uid() != request.uid() || found.meta().deletion_timestamp.is_some()
        })
    })
}
