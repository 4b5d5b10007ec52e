//! The lookup of a template's target, its pods and its pod template: the objects to read, and their interpretation. The
//! operator uses it for decisions, and ozctl for explanations.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::future::{join_all, try_join, try_join_all};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{ApiResource, DynamicObject, Selector};
use kube::{Resource, ResourceExt};
use oz_api::{CrossVersionObjectReference, TargetKind, Uid};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::target::{Workload, is_controlled_by, through_replica_sets};
use crate::controller::Failure;
use crate::mutate::Model;

/// The reason of a target that does not exist, or without a selector or pod template.
const TARGET_NOT_FOUND: &str = "TargetNotFound";
/// The number of claims of one workload that are looked up.
const CLAIMS: usize = 8;
/// The number of Jobs of a CronJob that are read: the newest of the running Jobs.
const JOBS: usize = 10;

/// A kind with objects that can be listed.
pub trait Listed:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + 'static
{
}

impl<K> Listed for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static
{
}

/// A reader of objects from the API server, in one namespace.
pub trait Reader: Sync {
    /// Returns the namespace.
    fn namespace(&self) -> &str;

    /// Returns the object of this name; `None` if it does not exist.
    fn get(
        &self,
        resource: &ApiResource,
        name: &str,
    ) -> impl Future<Output = Result<Option<DynamicObject>, Failure>> + Send;

    /// Returns the objects that a label selector selects; all without a selector.
    fn list<K>(
        &self,
        selector: Option<&str>,
    ) -> impl Future<Output = Result<Vec<K>, Failure>> + Send
    where
        K: Listed;
}

/// The data that distinguishes the pods of a workload from others. Kubernetes never permits its change while the UID
/// stays the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// UID of the workload.
    pub uid: String,
    /// The selector of its pods; `None` for a CronJob, where each Job has its own.
    pub selector: Option<String>,
}

/// Returns UID and selector of the target.
///
/// # Errors
/// The target cannot be read, does not exist, or selects everything.
pub async fn identify<R: Reader>(
    reader: &R,
    target: &CrossVersionObjectReference,
) -> Result<Identity, Failure> {
    let found = existing(reader, target).await?;
    let uid = Uid::from_metadata(&found.metadata);
    let uid = uid?.to_string();
    if target.kind == TargetKind::CronJob {
        return Ok(Identity {
            uid,
            selector: None,
        });
    }
    let spec = &found.data["spec"];
    let selector = match stands_for(spec).filter(|_| spec["selector"].is_null()) {
        Some(name) => deployment(reader, name)
            .await?
            .and_then(|found| selector(&found.data["spec"])),
        None => selector(spec),
    };
    let selector = selector.ok_or_else(|| {
        let title = title(reader, target);
        not_found(format!("{title} has no selector, so its pods are unknown"))
    })?;
    Ok(Identity {
        uid,
        selector: Some(selector),
    })
}

/// Returns the target with its pods.
///
/// # Errors
/// The pods cannot be read.
pub async fn with_pods<R: Reader>(
    reader: &R,
    target: &CrossVersionObjectReference,
    identity: Identity,
) -> Result<Workload, Failure> {
    let kind = target.kind.to_string();
    let (between, pods) = match identity.selector.as_deref() {
        Some(selector) => {
            let sets = async {
                if through_replica_sets(&kind) {
                    reader.list::<ReplicaSet>(Some(selector)).await
                } else {
                    Ok(Vec::new())
                }
            };
            let (pods, sets) = try_join(reader.list::<Pod>(Some(selector)), sets).await?;
            (sets.into_iter().map(|set| set.metadata).collect(), pods)
        }
        None => runs(reader, &identity.uid).await?,
    };
    Ok(Workload {
        kind,
        name: target.name.clone(),
        uid: identity.uid,
        between,
        pods,
    })
}

/// Returns the pod template of the target, and the access modes of its volumes.
///
/// # Errors
/// The target cannot be read, does not exist, or has no pod template.
pub async fn model<R: Reader>(
    reader: &R,
    target: &CrossVersionObjectReference,
) -> Result<Model, Failure> {
    let found = existing(reader, target).await?;
    let mut version = version(&found);
    let mut spec = found.data["spec"].clone();
    if let Some(name) = stands_for(&spec) {
        let deployment = deployment(reader, name).await?;
        let own = deployment.as_ref().and_then(self::version);
        version = version
            .zip(own)
            .map(|(one, other)| format!("{one} {other}"));
        spec = deployment.map_or(Value::Null, |found| found.data["spec"].clone());
    }
    let model = Model::of_workload(format!("{} {}", target.kind, target.name), &spec);
    let model =
        model.ok_or_else(|| not_found(format!("{} has no pod template", title(reader, target))))?;
    let access_modes = access_modes(reader, &model).await;
    Ok(Model {
        access_modes,
        version,
        ..model
    })
}

async fn existing<R: Reader>(
    reader: &R,
    target: &CrossVersionObjectReference,
) -> Result<DynamicObject, Failure> {
    let found = reader.get(&target.kind.resource(), &target.name).await?;
    found.ok_or_else(|| {
        not_found(format!(
            "{} does not exist; create it, or correct the template's spec.controllerTargetRef",
            title(reader, target)
        ))
    })
}

async fn deployment<R: Reader>(reader: &R, name: &str) -> Result<Option<DynamicObject>, Failure> {
    reader.get(&TargetKind::Deployment.resource(), name).await
}

/// Returns the selector in the spec of a workload, as the API server accepts it; `None` if it has none, or one that
/// selects everything.
fn selector(spec: &Value) -> Option<String> {
    written(serde_json::from_value(spec["selector"].clone()).ok()?)
}

fn written(selector: LabelSelector) -> Option<String> {
    let selector = Selector::try_from(selector).ok()?;
    (!selector.selects_all()).then(|| selector.to_string())
}

/// Returns the Deployment that a Rollout refers to, if the Rollout has no pod template.
fn stands_for(spec: &Value) -> Option<&str> {
    let reference = &spec["workloadRef"];
    (reference["kind"] == "Deployment")
        .then(|| reference["name"].as_str())
        .flatten()
}

/// Returns UID and generation; the generation differs for every change of the spec.
fn version(found: &DynamicObject) -> Option<String> {
    let metadata = &found.metadata;
    let (uid, generation) = (metadata.uid.as_ref()?, metadata.generation?);
    Some(format!("{uid}/{generation}"))
}

/// Returns the access modes of the claims that pods of the workload mount. They only lead to a warning, so a claim that
/// cannot be read, perhaps because the right is missing, is unknown and not a failure.
async fn access_modes<R: Reader>(reader: &R, model: &Model) -> BTreeMap<String, Vec<String>> {
    let resource = ApiResource::erase::<PersistentVolumeClaim>(&());
    let names = model.mounted_claims().into_iter().take(CLAIMS);
    let resource = &resource;
    let found = names.map(|name| async move {
        let claim = reader.get(resource, name).await.ok()??;
        let modes = serde_json::from_value(claim.data["spec"]["accessModes"].clone()).ok()?;
        Some((name.to_owned(), modes))
    });
    join_all(found).await.into_iter().flatten().collect()
}

/// Returns the Jobs of a CronJob that have not finished, and their pods. Only the owner reference identifies the
/// CronJob of a Job, so all Jobs of the namespace are listed.
async fn runs<R: Reader>(reader: &R, uid: &str) -> Result<(Vec<ObjectMeta>, Vec<Pod>), Failure> {
    let mut jobs = reader.list::<Job>(None).await?;
    jobs.retain(|job| is_controlled_by(&job.metadata, uid) && !has_finished(job));
    jobs.sort_by_key(|job| std::cmp::Reverse(job.creation_timestamp()));
    jobs.truncate(JOBS);
    let selectors = jobs
        .iter()
        .filter_map(|job| written(job.spec.as_ref()?.selector.clone()?));
    let pods = selectors.map(|selector| async move { reader.list::<Pod>(Some(&selector)).await });
    let pods = try_join_all(pods).await?;
    let jobs = jobs.into_iter().map(|job| job.metadata).collect();
    Ok((jobs, pods.into_iter().flatten().collect()))
}

fn has_finished(job: &Job) -> bool {
    let status = job.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        ["Complete", "Failed"].contains(&condition.type_.as_str()) && condition.status == "True"
    })
}

/// Returns kind, namespace and name, for messages.
fn title<R: Reader>(reader: &R, target: &CrossVersionObjectReference) -> String {
    format!("{} {}/{}", target.kind, reader.namespace(), target.name)
}

fn not_found(message: String) -> Failure {
    Failure::transient(TARGET_NOT_FOUND, message)
}

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;
