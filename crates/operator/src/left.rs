//! What the program that was there before oz made for a request: it bears no mark of oz, and so is in
//! no store. Read when a request is refused for want of a stamp, which is once for each.

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use oz_core::access::grant::object_name;
use oz_core::access::request::Request;
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

/// The objects of these kinds that have the name of the request's grant.
pub(crate) async fn left(
    cx: &Cx,
    request: &Request<'_>,
    kinds: Vec<ApiResource>,
) -> Result<Vec<Live>, Failure> {
    let metadata = request.metadata;
    let name = object_name(metadata.name.as_deref().unwrap_or_default(), request.uid());
    let reads = kinds.into_iter().map(async |resource| {
        let namespace = metadata.namespace.as_deref();
        let found = cx
            .get_with::<DynamicObject>(namespace, &name, &resource)
            .await?;
        Ok(found.map(|object| Live { resource, object }))
    });
    let found: Vec<Option<Live>> = try_join_all(reads).await?;
    Ok(found.into_iter().flatten().collect())
}
