//! What both kinds of access may ask before it is decided about a request, and that is found out the same
//! way for each.

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Resource, ResourceExt};
use oz_core::access::grant::object_name;
use oz_core::access::kind::{FactsOf, Kind, MAX_POLICIES, Question};
use oz_core::access::request::Request;
use oz_core::controller::{Failure, Live};
use oz_core::kinds::AccessRequest as _;
use oz_engine::Cx;
use oz_runtime::Store;

use crate::as_author::try_as_author;
use crate::stamps::Stamps;

/// Adds the answer to what is known.
pub(crate) async fn answer<K: Kind>(
    cx: &Cx,
    stamps: &Stamps,
    requests: &Store<K::Request>,
    request: &K::Request,
    question: Question,
    facts: &mut FactsOf<K>,
) {
    match question {
        Question::Deletion => facts.is_deleted = Some(is_deleted(cx, request).await),
        Question::Predecessor => {
            facts.predecessor = Some(predecessor(cx, &request.view()).await);
        }
        Question::SameStamp => facts.same_stamp = Some(stamps.same(cx.now(), requests, request)),
        Question::Policies => {
            let first = ListParams::default().limit(MAX_POLICIES);
            facts.policies = Some(cx.list(request.namespace().as_deref(), &first).await);
        }
        Question::Trial(trial) => facts.tried = Some(try_as_author(cx, &trial).await),
        // Of what is there of a workload each kind reads what it needs; names are kept by the process.
        Question::Workload(_) | Question::Probes(_) | Question::RoleName(_) => {}
    }
}

/// Whether a request is gone or on its way out, by the API server itself: watches of different kinds do
/// not keep in step. Without an answer it is taken to stay.
async fn is_deleted<R>(cx: &Cx, request: &R) -> bool
where
    R: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let namespace = request.namespace();
    let found = cx.get::<R>(namespace.as_deref(), &request.name_any()).await;
    found.is_ok_and(|found| {
        found.is_none_or(|found| {
            found.uid() != request.uid() || found.meta().deletion_timestamp.is_some()
        })
    })
}

/// What has the name of the request's grant, whoever made it. What the program that was there before oz
/// made bears no mark, and so is in no store.
async fn predecessor(cx: &Cx, request: &Request<'_>) -> Result<Vec<Live>, Failure> {
    let metadata = request.metadata;
    let name = object_name(metadata.name.as_deref().unwrap_or_default(), request.uid());
    let mut kinds = vec![ApiResource::erase::<RoleBinding>(&())];
    if request.makes_pod {
        kinds.push(ApiResource::erase::<Pod>(&()));
    }
    kinds.push(ApiResource::erase::<Role>(&()));
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
