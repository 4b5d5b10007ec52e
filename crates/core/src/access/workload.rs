//! From the target of a template to its pods and its pod template: which objects are read, and what
//! they say. The operator looks targets up by it when it decides, and ozctl when it explains.

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
use oz_api::{CrossVersionObjectReference, TargetKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::target::{Workload, is_controlled_by, through_replica_sets};
use crate::controller::Failure;
use crate::mutate::Model;

/// The reason of a target that does not exist or has no pods to speak of.
const TARGET_NOT_FOUND: &str = "TargetNotFound";
/// How many claims of one workload are looked up.
const CLAIMS: usize = 8;
/// How many Jobs of a CronJob are looked into: the newest of those that run.
const JOBS: usize = 10;

/// A kind of which objects can be listed.
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

/// Reads from the API server, in one namespace.
pub trait Reader: Sync {
    /// The namespace.
    fn namespace(&self) -> &str;

    /// The object of this name; `None` if there is none.
    fn get(
        &self,
        resource: &ApiResource,
        name: &str,
    ) -> impl Future<Output = Result<Option<DynamicObject>, Failure>> + Send;

    /// The objects that a selector of labels selects; all without one.
    fn list<K>(
        &self,
        selector: Option<&str>,
    ) -> impl Future<Output = Result<Vec<K>, Failure>> + Send
    where
        K: Listed;
}

/// What tells the pods of a workload from others. Kubernetes never lets it change while the UID stays
/// the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// UID of the workload.
    pub uid: String,
    /// The selector of its pods; `None` for a CronJob, whose Jobs have one each.
    pub selector: Option<String>,
}

/// UID and selector of the target.
///
/// # Errors
/// When it cannot be read, does not exist, or selects everything.
pub async fn identify<R: Reader>(
    reader: &R,
    target: &CrossVersionObjectReference,
) -> Result<Identity, Failure> {
    let found = existing(reader, target).await?;
    let uid = found.uid().unwrap_or_default();
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
        not_found(format!(
            "{title} has no selector, so its pods cannot be told"
        ))
    })?;
    Ok(Identity {
        uid,
        selector: Some(selector),
    })
}

/// The target with its pods.
///
/// # Errors
/// When they cannot be read.
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

/// The pod template of the target, and what is special about its volumes.
///
/// # Errors
/// When it cannot be read, does not exist, or has none.
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

/// The selector in the spec of a workload, as the API server takes it; `None` if it has none, or
/// one that selects everything.
fn selector(spec: &Value) -> Option<String> {
    written(serde_json::from_value(spec["selector"].clone()).ok()?)
}

fn written(selector: LabelSelector) -> Option<String> {
    let selector = Selector::try_from(selector).ok()?;
    (!selector.selects_all()).then(|| selector.to_string())
}

/// The Deployment that a Rollout stands for, if it has no pod template of its own.
fn stands_for(spec: &Value) -> Option<&str> {
    let reference = &spec["workloadRef"];
    (reference["kind"] == "Deployment")
        .then(|| reference["name"].as_str())
        .flatten()
}

/// UID and generation, which is another one with every other spec.
fn version(found: &DynamicObject) -> Option<String> {
    let metadata = &found.metadata;
    let (uid, generation) = (metadata.uid.as_ref()?, metadata.generation?);
    Some(format!("{uid}/{generation}"))
}

/// The access modes of the claims that pods of the workload mount. Only a warning comes of it, so
/// what cannot be read, perhaps for want of the right, is not known and no failure.
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

/// The Jobs of a CronJob that have not finished, and their pods. Nothing but the owner reference
/// tells whose a Job is, so all of the namespace are listed.
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

/// Kind, namespace and name, for messages.
fn title<R: Reader>(reader: &R, target: &CrossVersionObjectReference) -> String {
    format!("{} {}/{}", target.kind, reader.namespace(), target.name)
}

fn not_found(message: String) -> Failure {
    Failure::transient(TARGET_NOT_FOUND, message)
}

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;
