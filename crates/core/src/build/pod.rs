//! The pod of a grant. The request owns it, so that deleting the request ends it even while oz is
//! down; the kubelet ends it as well, by its deadline. It carries the sealed decision, being the
//! first object of a grant that anything follows from.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use super::owner;
use crate::access::grant::Grant;
use crate::controller::Child;
use crate::encode;
use crate::labels;
use crate::mutate::Rendered;

/// How long before the agreed instant the kubelet begins to end a pod by itself: it gives two
/// seconds of grace at least, and was seen to be late.
const BEFORE_THE_END: i64 = 3;
/// How late a pod may start without another write. What is left of the slack holds for it.
const LATE: i64 = 2;

/// The pod for a grant; `sealed` is the decision as [`Grant::seal`] made it.
#[must_use]
pub fn pod(grant: &Grant, rendered: &Rendered, sealed: String) -> Child {
    let mut annotations = rendered.annotations.clone();
    annotations.insert(labels::GRANT.to_owned(), sealed);
    let mut metadata = named(grant);
    metadata.labels = Some(rendered.labels.clone());
    metadata.annotations = Some(annotations);
    metadata.owner_references = Some(vec![owner(&grant.request)]);
    mark(&mut metadata, grant);
    let mut spec = rendered.spec.clone();
    let deadline = deadline(grant.granted_at, grant.window.until);
    let own = spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    let deadline = own.map_or(deadline, |own| own.min(deadline));
    spec.insert("activeDeadlineSeconds".to_owned(), json!(deadline));
    child(metadata, Value::Object(spec))
}

/// What is to be applied to a pod that started so late that its deadline would be past the agreed
/// instant; `None` if it is not.
#[must_use]
pub fn lowered_deadline(grant: &Grant, live: &Pod) -> Option<Child> {
    let started = live.status.as_ref()?.start_time.as_ref()?.0;
    let set = live.spec.as_ref()?.active_deadline_seconds?;
    let wanted = deadline(started, grant.window.until);
    (set > wanted + LATE).then(|| {
        let mut metadata = named(grant);
        mark(&mut metadata, grant);
        child(metadata, json!({"activeDeadlineSeconds": wanted}))
    })
}

/// Digest of what can be changed of a running pod and makes another one of it: images and limits.
/// The API server lets nobody change the rest.
#[must_use]
pub fn changeable(spec: &Value) -> String {
    let containers = |list: &str| -> Vec<Value> {
        let containers = spec[list].as_array().into_iter().flatten();
        containers
            .map(|one| json!([one["name"], one["image"], one["resources"]["limits"]]))
            .collect()
    };
    encode::digest(&json!([
        containers("initContainers"),
        containers("containers")
    ]))
}

fn deadline(from: Timestamp, until: Timestamp) -> i64 {
    let remaining = until.duration_since(from).as_secs();
    (remaining - BEFORE_THE_END).max(1)
}

fn named(grant: &Grant) -> ObjectMeta {
    ObjectMeta {
        name: Some(grant.object_name()),
        namespace: Some(grant.request.namespace.clone()),
        ..ObjectMeta::default()
    }
}

fn mark(metadata: &mut ObjectMeta, grant: &Grant) {
    let request = &grant.request;
    labels::mark(metadata, &request.kind, &request.name, &request.uid);
}

/// Not through the type, which would lose fields of a newer Kubernetes.
fn child(metadata: ObjectMeta, spec: Value) -> Child {
    let resource = ApiResource::erase::<Pod>(&());
    let mut object = DynamicObject::new("", &resource);
    object.metadata = metadata;
    object.data = json!({"spec": spec});
    Child { resource, object }
}
