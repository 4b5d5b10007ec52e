//! Reads target workloads and their pods. Neither is watched: they are many and change often, and
//! all that is needed is what exists at the moment of a grant.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, Selector};
use oz_core::access::target::{Workload, is_controlled_by, through_replica_sets};
use oz_core::api::{CrossVersionObjectReference, TargetKind};
use oz_core::controller::Failure;
use oz_core::mutate::Model;
use oz_engine::Cx;
use serde_json::Value;

/// The reason of a target that does not exist or has no pods to speak of.
const TARGET_NOT_FOUND: &str = "TargetNotFound";

/// Reads workloads; remembers their selectors, which Kubernetes never lets change while the UID
/// stays the same, so that a grant costs two reads and not three.
#[derive(Default)]
pub(crate) struct Workloads {
    known: Mutex<HashMap<Place, Identity>>,
}

/// Namespace, kind and name.
type Place = (String, TargetKind, String);

#[derive(Clone)]
struct Identity {
    uid: String,
    /// `None` for a CronJob: its Jobs have one each.
    selector: Option<String>,
}

impl Workloads {
    /// Whether the workload exists, and can be told from others.
    pub(crate) async fn exists(
        &self,
        cx: &Cx,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> Result<(), Failure> {
        self.look_up(cx, namespace, target).await.map(drop)
    }

    /// The workload with its pods.
    pub(crate) async fn read(
        &self,
        cx: &Cx,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> Result<Workload, Failure> {
        if let Some(identity) = self.remembered(namespace, target) {
            let workload = list(cx, namespace, target, identity).await?;
            // Without any pod of its own it may have been replaced by another of the same name.
            if workload.choose("", None).is_ok() {
                return Ok(workload);
            }
        }
        let identity = self.look_up(cx, namespace, target).await?;
        list(cx, namespace, target, identity).await
    }

    /// The pod template of the workload, and what is special about its volumes.
    pub(crate) async fn model(
        &self,
        cx: &Cx,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> Result<Model, Failure> {
        let title = format!("{} {}", target.kind, target.name);
        let found = read(cx, namespace, target.kind, &target.name)
            .await?
            .ok_or_else(|| missing(namespace, target))?;
        let mut version = version(&found);
        let mut spec = found.data["spec"].clone();
        if let Some(name) = stands_for(&spec) {
            let deployment = read(cx, namespace, TargetKind::Deployment, name).await?;
            let own = deployment.as_ref().and_then(self::version);
            version = version
                .zip(own)
                .map(|(one, other)| format!("{one} {other}"));
            spec = deployment.map_or(Value::Null, |found| found.data["spec"].clone());
        }
        let model = Model::of_workload(title, &spec).ok_or_else(|| {
            Failure::transient(
                TARGET_NOT_FOUND,
                format!(
                    "{} {namespace}/{} has no pod template",
                    target.kind, target.name
                ),
            )
        })?;
        let access_modes = access_modes(cx, namespace, &model).await;
        Ok(Model {
            access_modes,
            version,
            ..model
        })
    }

    fn remembered(
        &self,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> Option<Identity> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&place(namespace, target)).cloned()
    }

    async fn look_up(
        &self,
        cx: &Cx,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> Result<Identity, Failure> {
        let found = identify(cx, namespace, target).await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &found {
            Ok(identity) => known.insert(place(namespace, target), identity.clone()),
            Err(_) => known.remove(&place(namespace, target)),
        };
        found
    }
}

fn place(namespace: &str, target: &CrossVersionObjectReference) -> Place {
    (namespace.to_owned(), target.kind, target.name.clone())
}

/// UID and selector of the workload.
async fn identify(
    cx: &Cx,
    namespace: &str,
    target: &CrossVersionObjectReference,
) -> Result<Identity, Failure> {
    let name = target.name.as_str();
    let scope = Some(namespace);
    let (uid, selector) = match target.kind {
        TargetKind::Deployment => cx
            .get::<Deployment>(scope, name)
            .await?
            .map(|found| (found.uid(), found.spec.map(|spec| spec.selector))),
        TargetKind::StatefulSet => cx
            .get::<StatefulSet>(scope, name)
            .await?
            .map(|found| (found.uid(), found.spec.map(|spec| spec.selector))),
        TargetKind::DaemonSet => cx
            .get::<DaemonSet>(scope, name)
            .await?
            .map(|found| (found.uid(), found.spec.map(|spec| spec.selector))),
        TargetKind::Job => cx
            .get::<Job>(scope, name)
            .await?
            .map(|found| (found.uid(), found.spec.and_then(|spec| spec.selector))),
        TargetKind::CronJob => {
            let found = cx.get::<CronJob>(scope, name).await?;
            let found = found.ok_or_else(|| missing(namespace, target))?;
            return Ok(Identity {
                uid: found.uid().unwrap_or_default(),
                selector: None,
            });
        }
        TargetKind::Rollout => match read(cx, namespace, target.kind, name).await? {
            Some(found) => Some((found.uid(), rollout_selector(cx, namespace, &found).await?)),
            None => None,
        },
    }
    .ok_or_else(|| missing(namespace, target))?;
    let selector = selector.and_then(written).ok_or_else(|| {
        Failure::transient(
            TARGET_NOT_FOUND,
            format!(
                "{} {namespace}/{name} has no selector, so its pods cannot be told",
                target.kind
            ),
        )
    })?;
    Ok(Identity {
        uid: uid.unwrap_or_default(),
        selector: Some(selector),
    })
}

/// A selector as the API server takes it; `None` if it selects everything.
fn written(selector: LabelSelector) -> Option<String> {
    let selector = Selector::try_from(selector).ok()?;
    (!selector.selects_all()).then(|| selector.to_string())
}

/// As JSON, with fields that are newer than ours.
async fn read(
    cx: &Cx,
    namespace: &str,
    kind: TargetKind,
    name: &str,
) -> Result<Option<DynamicObject>, Failure> {
    let version = kind.api_version();
    let title = kind.to_string();
    let named = GroupVersionKind::gvk(version.group(), version.version(), &title);
    let resource = ApiResource::from_gvk_with_plural(&named, kind.plural());
    cx.get_with(Some(namespace), name, &resource).await
}

/// UID and generation, which is another one with every other spec.
fn version(found: &DynamicObject) -> Option<String> {
    let metadata = &found.metadata;
    let (uid, generation) = (metadata.uid.as_ref()?, metadata.generation?);
    Some(format!("{uid}/{generation}"))
}

/// The Deployment that a Rollout stands for, if it has no pod template of its own.
fn stands_for(spec: &Value) -> Option<&str> {
    let reference = &spec["workloadRef"];
    (reference["kind"] == "Deployment")
        .then(|| reference["name"].as_str())
        .flatten()
}

/// A Rollout names its pods by a selector of its own or by the Deployment that it stands for.
async fn rollout_selector(
    cx: &Cx,
    namespace: &str,
    rollout: &DynamicObject,
) -> Result<Option<LabelSelector>, Failure> {
    let spec = &rollout.data["spec"];
    if let Ok(selector) = serde_json::from_value::<LabelSelector>(spec["selector"].clone()) {
        return Ok(Some(selector));
    }
    match stands_for(spec) {
        Some(name) => Ok(cx
            .get::<Deployment>(Some(namespace), name)
            .await?
            .and_then(|found| found.spec)
            .map(|spec| spec.selector)),
        None => Ok(None),
    }
}

async fn list(
    cx: &Cx,
    namespace: &str,
    target: &CrossVersionObjectReference,
    identity: Identity,
) -> Result<Workload, Failure> {
    let kind = target.kind.to_string();
    let (between, pods) = match &identity.selector {
        Some(selector) => {
            let selection = ListParams::default().labels(selector);
            let sets = async {
                if through_replica_sets(&kind) {
                    cx.list::<ReplicaSet>(Some(namespace), &selection).await
                } else {
                    Ok(Vec::new())
                }
            };
            let (pods, sets) = tokio::try_join!(cx.list::<Pod>(Some(namespace), &selection), sets)?;
            (sets.into_iter().map(|set| set.metadata).collect(), pods)
        }
        None => of_cron_job(cx, namespace, &identity.uid).await?,
    };
    Ok(Workload {
        kind,
        name: target.name.clone(),
        uid: identity.uid,
        between,
        pods,
    })
}

/// How many claims of one workload are looked up.
const CLAIMS: usize = 8;

/// The access modes of the claims that pods of the workload mount. Only a warning comes of it, so
/// what cannot be read, perhaps for want of the right, is not known and no failure.
async fn access_modes(cx: &Cx, namespace: &str, model: &Model) -> BTreeMap<String, Vec<String>> {
    let names = model.mounted_claims().into_iter().take(CLAIMS);
    let found = names.map(async |name| {
        let claim = cx.get::<PersistentVolumeClaim>(Some(namespace), name).await;
        let modes = claim.ok()??.spec?.access_modes?;
        Some((name.to_owned(), modes))
    });
    let found = futures::future::join_all(found).await;
    found.into_iter().flatten().collect()
}

/// How many Jobs of a CronJob are looked into: the newest of those that run.
const JOBS: usize = 10;

/// The Jobs of a CronJob that have not finished, and their pods. Nothing but the owner reference
/// tells whose a Job is, so all of the namespace are listed.
async fn of_cron_job(
    cx: &Cx,
    namespace: &str,
    uid: &str,
) -> Result<(Vec<ObjectMeta>, Vec<Pod>), Failure> {
    let scope = Some(namespace);
    let mut jobs = cx.list::<Job>(scope, &ListParams::default()).await?;
    jobs.retain(|job| is_controlled_by(&job.metadata, uid) && !has_finished(job));
    jobs.sort_by_key(|job| std::cmp::Reverse(job.creation_timestamp()));
    jobs.truncate(JOBS);
    let selectors = jobs
        .iter()
        .filter_map(|job| written(job.spec.as_ref()?.selector.clone()?));
    let pods = selectors.map(async |selector| {
        let selection = ListParams::default().labels(&selector);
        cx.list::<Pod>(scope, &selection).await
    });
    let pods = futures::future::try_join_all(pods).await?;
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

fn missing(namespace: &str, target: &CrossVersionObjectReference) -> Failure {
    Failure::transient(
        TARGET_NOT_FOUND,
        format!(
            "{} {namespace}/{} does not exist; create it, or correct the template's \
             spec.controllerTargetRef",
            target.kind, target.name
        ),
    )
}
