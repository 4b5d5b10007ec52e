//! Reads target workloads and their pods. Neither is watched: they are many and change often, and
//! all that is needed is what exists at the moment of a grant.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, Selector};
use oz_core::access::target::{Workload, through_replica_sets};
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
    selector: String,
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
        let mut spec = found.data["spec"].clone();
        if let Some(name) = stands_for(&spec) {
            let deployment = read(cx, namespace, TargetKind::Deployment, name).await?;
            spec = deployment.map_or(Value::Null, |found| found.data["spec"].clone());
        }
        Model::of_workload(title, &spec).ok_or_else(|| {
            Failure::transient(
                TARGET_NOT_FOUND,
                format!(
                    "{} {namespace}/{} has no pod template",
                    target.kind, target.name
                ),
            )
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
        TargetKind::Rollout => match read(cx, namespace, target.kind, name).await? {
            Some(found) => Some((found.uid(), rollout_selector(cx, namespace, &found).await?)),
            None => None,
        },
    }
    .ok_or_else(|| missing(namespace, target))?;
    let selector = selector
        .and_then(|selector| Selector::try_from(selector).ok())
        .filter(|selector| !selector.selects_all())
        .ok_or_else(|| {
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
        selector: selector.to_string(),
    })
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
    let selection = ListParams::default().labels(&identity.selector);
    let sets = async {
        if through_replica_sets(&kind) {
            cx.list::<ReplicaSet>(Some(namespace), &selection).await
        } else {
            Ok(Vec::new())
        }
    };
    let (pods, sets) = tokio::try_join!(cx.list::<Pod>(Some(namespace), &selection), sets)?;
    let replica_sets: Vec<ObjectMeta> = sets.into_iter().map(|set| set.metadata).collect();
    Ok(Workload {
        kind,
        name: target.name.clone(),
        uid: identity.uid,
        replica_sets,
        pods,
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
