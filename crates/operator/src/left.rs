//! What the program that was there before oz made for a request: it bears no mark of oz, and so is in
//! no store. Read when a request is refused for want of a stamp, which is once for each.

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use oz_core::access::grant::object_name;
use oz_core::access::kind::{self, Kind, ObservedOf};
use oz_core::controller::{Failure, Live};
use oz_engine::Cx;

/// A kind that access to a pod that runs already may consist of.
pub(crate) fn bindings() -> Vec<ApiResource> {
    vec![erased::<RoleBinding>(), erased::<Role>()]
}

/// A kind that access to a pod of one's own may consist of.
pub(crate) fn pod_and_bindings() -> Vec<ApiResource> {
    vec![erased::<RoleBinding>(), erased::<Pod>(), erased::<Role>()]
}

fn erased<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// The objects of these kinds that have the name of the request's grant, if the request is refused for
/// want of a stamp.
pub(crate) async fn left<K: Kind>(
    cx: &Cx,
    controller: &K,
    request: &K::Request,
    observed: &ObservedOf<K>,
    live: &[Live],
    kinds: Vec<ApiResource>,
) -> Option<Result<Vec<Live>, Failure>> {
    if !kind::is_unstamped(controller, cx.now(), request, observed, live) {
        return None;
    }
    let request = K::view(request);
    let metadata = request.metadata;
    let name = object_name(metadata.name.as_deref().unwrap_or_default(), request.uid());
    let reads = kinds.into_iter().map(async |resource| {
        let namespace = metadata.namespace.as_deref();
        let found = cx
            .get_with::<DynamicObject>(namespace, &name, &resource)
            .await?;
        Ok(found.map(|object| Live { resource, object }))
    });
    let found: Result<Vec<Option<Live>>, Failure> = try_join_all(reads).await;
    Some(found.map(|found| found.into_iter().flatten().collect()))
}
