//! The questions that both kinds of access may ask before the decision about a request, and that
//! have a common answer for both.

use std::sync::Arc;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Resource, ResourceExt};
use oz_api::harness::HarnessRun;
use oz_api::{AccessRequestApproval, Phase, labels};
use oz_core::access::approval::{self, Candidate};
use oz_core::access::kind::{FactsOf, Kind, MAX_ANSWERS, MAX_POLICIES, Question};
use oz_core::access::policy;
use oz_core::access::request::StoredRequest;
use oz_core::controller::{Failure, Live};
use oz_core::kinds::AccessRequest;
use oz_core::transient;
use oz_engine::Cx;
use oz_runs::run::candidate;
use oz_runs::stored::StoredObject;
use oz_runtime::Store;

use crate::as_author::try_as_author;
use crate::stamps::Stamps;

/// Adds the answer to the known facts.
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
            facts.predecessor = Some(match request.stored() {
                Ok(request) => predecessor(cx, &request).await,
                Err(error) => Err(error.into()),
            });
        }
        Question::SameStamp => facts.same_stamp = Some(stamps.same(cx.now(), requests, request)),
        Question::Policies => {
            let first = ListParams::default().limit(MAX_POLICIES);
            facts.policies = Some(cx.list(request.namespace().as_deref(), &first).await);
        }
        Question::Approvals => {
            facts.confirmed = Some(match request.stored() {
                Ok(request) => approvals(cx, &request.candidate()).await,
                Err(error) => Err(error.into()),
            });
        }
        Question::Trial(trial) => facts.tried = Some(try_as_author(cx, &trial).await),
        // Each kind reads the part of a workload that it requires; the process manages names, and
        // the room for emergencies.
        Question::Workload(_)
        | Question::Probes(_)
        | Question::RoleName(_)
        | Question::Emergencies(_) => {}
    }
}

/// Checks whether a request is deleted or being deleted, with a read from the API server: watches
/// of different kinds are not synchronized. Without a response, the request counts as existing.
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

/// Returns the approvals and denials of a request. If there are more than the limit, it fails,
/// since a denial could be missing.
pub(crate) async fn approvals(
    cx: &Cx,
    candidate: &Candidate<'_>,
) -> Result<Vec<AccessRequestApproval>, Failure> {
    let about = labels::value(candidate.identity.uid.as_str());
    let selection = ListParams::default()
        .labels(&format!("{}={about}", labels::REQUEST_UID))
        .limit(MAX_ANSWERS);
    let answers = cx.list(candidate.answered_in, &selection).await?;
    if u32::try_from(answers.len()).is_ok_and(|count| count < MAX_ANSWERS) {
        return Ok(answers);
    }
    Err(Failure::invalid(
        "TooManyApprovals",
        format!(
            "there are {MAX_ANSWERS} or more approvals and denials of it; have the requester \
            create the request again"
        ),
    ))
}

/// Returns the approvals and denials of a request from a watch, if its template requires approval.
pub(crate) fn answered<K: Kind>(
    approvals: &Store<AccessRequestApproval>,
    template: Option<&K::Template>,
    request: &K::Request,
) -> Vec<AccessRequestApproval> {
    let Ok(view) = request.stored() else {
        return Vec::new();
    };
    let asks = |template: &K::Template| policy::asks(&view, template);
    if view.phase() != Phase::Pending || !template.is_some_and(asks) {
        return Vec::new();
    }
    seen(approvals, &view.candidate())
}

/// Returns the approvals and denials of a candidate from a watch.
pub(crate) fn seen(
    approvals: &Store<AccessRequestApproval>,
    candidate: &Candidate<'_>,
) -> Vec<AccessRequestApproval> {
    let about = approvals.select(|answer| approval::is_about(answer, candidate));
    about
        .iter()
        .map(|answer| AccessRequestApproval::clone(answer))
        .collect()
}

/// Returns the requests of a kind to which an approval or denial refers.
pub(crate) fn about<R: AccessRequest>(
    answer: &AccessRequestApproval,
    requests: &Store<R>,
) -> Vec<Arc<R>> {
    let found = requests.by_uid(&answer.spec.access_request_ref.uid);
    let is_about = |request: &Arc<R>| {
        let request = request.stored();
        request.is_ok_and(|request| approval::is_about(answer, &request.candidate()))
    };
    found.filter(is_about).into_iter().collect()
}

/// Returns the transient bindings of a kind to which an approval or denial refers. Approvals and
/// denials of cluster-scoped bindings are in `own_namespace`.
pub(crate) fn about_bindings<K: transient::Kind>(
    own_namespace: &Arc<str>,
) -> impl Fn(&AccessRequestApproval, &Store<K>) -> Vec<Arc<K>> + Send + Sync + 'static {
    let namespace = Arc::clone(own_namespace);
    move |answer, bindings| {
        let found = bindings.by_uid(&answer.spec.access_request_ref.uid);
        let is_about = |binding: &Arc<K>| {
            let binding = binding.stored();
            binding.is_ok_and(|binding| approval::is_about(answer, &binding.candidate(&namespace)))
        };
        found.filter(is_about).into_iter().collect()
    }
}

/// Returns the harness runs to which an approval or denial refers.
pub(crate) fn about_runs(
    answer: &AccessRequestApproval,
    runs: &Store<HarnessRun>,
) -> Vec<Arc<HarnessRun>> {
    let found = runs.by_uid(&answer.spec.access_request_ref.uid);
    let is_about = |run: &Arc<HarnessRun>| {
        let run = StoredObject::new(&**run);
        run.is_ok_and(|run| approval::is_about(answer, &candidate(&run)))
    };
    found.filter(is_about).into_iter().collect()
}

/// Returns the objects with the name of the request's grant, regardless of their creator. Objects
/// from the program that oz replaces have no mark, and so are in no store.
async fn predecessor(cx: &Cx, request: &StoredRequest<'_>) -> Result<Vec<Live>, Failure> {
    let metadata = request.metadata;
    let name = request.object_name();
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
        Ok::<_, Failure>(found.map(|object| Live { resource, object }))
    });
    let found: Vec<Option<Live>> = try_join_all(reads).await?;
    Ok(found.into_iter().flatten().collect())
}
