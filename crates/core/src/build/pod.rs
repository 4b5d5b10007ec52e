//! The pod of a grant. The request owns it, so that deleting the request ends it even while oz is down; the
//! kubelet ends it as well, by its deadline. It carries the sealed decision, being the first object of a
//! grant that has an effect.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject};
use oz_api::{encode, labels};
use serde_json::{Value, json};

use super::owner;
use crate::access::grant::Grant;
use crate::controller::Child;
use crate::mutate::Rendered;

/// The number of seconds before the agreed instant at which the kubelet begins to end a pod automatically: it
/// gives two seconds of grace at least, and was seen to be late.
const BEFORE_THE_END: i64 = 3;
/// The number of seconds by which a pod may start late without another write. The remaining slack covers it.
const LATE: i64 = 2;

/// Returns the pod for a grant; `sealed` is the decision as [`Grant::seal`] returned it.
#[must_use]
pub fn pod(grant: &Grant, rendered: &Rendered, sealed: String) -> Child {
    let mut annotations = rendered.annotations.clone();
    annotations.insert(labels::GRANT.to_owned(), sealed);
    let mut metadata = object_meta(grant);
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

/// Returns the change for a pod that started so late that its deadline would be past the agreed instant;
/// `None` if it did not.
#[must_use]
pub fn lowered_deadline(grant: &Grant, live: &Pod) -> Option<Child> {
    let started = live.status.as_ref()?.start_time.as_ref()?.0;
    let set = live.spec.as_ref()?.active_deadline_seconds?;
    let wanted = deadline(started, grant.window.until);
    (set > wanted + LATE).then(|| {
        let mut metadata = object_meta(grant);
        mark(&mut metadata, grant);
        child(metadata, json!({"activeDeadlineSeconds": wanted}))
    })
}

/// Returns the digest of the fields that can be changed in a running pod and alter its identity: images and
/// limits. The API server rejects changes of all other fields.
/// See <https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement>.
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

/// Returns the digest of the programs of a pod, their inputs and their accounts, as far as the API server
/// stores them as they were written.
#[must_use]
pub fn content(spec: &Value) -> String {
    let containers = |list: &str| -> Vec<Value> {
        let containers = spec[list].as_array().into_iter().flatten();
        containers.map(container).collect()
    };
    let all = ["initContainers", "containers", "ephemeralContainers"].map(containers);
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let volumes: Vec<Value> = volumes
        .filter(|volume| !is_of_token(&volume["name"]))
        .map(|volume| {
            let fields = volume.as_object().into_iter().flatten();
            let fields: Vec<&String> = fields.map(|(name, _)| name).collect();
            json!([volume["name"], fields])
        })
        .collect();
    let host = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"]
        .map(|field| spec[field] == true);
    let account = spec["serviceAccountName"].as_str().unwrap_or("default");
    encode::digest(&json!([
        all,
        volumes,
        host,
        account,
        given(&spec["securityContext"])
    ]))
}

fn container(one: &Value) -> Value {
    let env = one["env"].as_array().into_iter().flatten();
    let env: Vec<Value> = env
        .map(|one| json!([one["name"], given(&one["value"])]))
        .collect();
    let mounts = one["volumeMounts"].as_array().into_iter().flatten();
    let mounts: Vec<Value> = mounts
        .filter(|mount| !is_of_token(&mount["name"]))
        .map(|mount| json!([mount["name"], mount["mountPath"]]))
        .collect();
    let fields = [
        "name",
        "image",
        "command",
        "args",
        "workingDir",
        "securityContext",
    ];
    json!([fields.map(|field| given(&one[field]).cloned()), env, mounts])
}

/// Checks whether this is the volume that admission adds, with the pod's token.
fn is_of_token(name: &Value) -> bool {
    name.as_str()
        .is_some_and(|name| name.starts_with("kube-api-access-"))
}

/// Returns a value unless it is empty: the API server leaves out empty values.
fn given(value: &Value) -> Option<&Value> {
    let empty = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    (!empty).then_some(value)
}

fn deadline(from: Timestamp, until: Timestamp) -> i64 {
    let remaining = until.duration_since(from).as_secs();
    (remaining - BEFORE_THE_END).max(1)
}

fn object_meta(grant: &Grant) -> ObjectMeta {
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

/// Creates a child from JSON and not through the type, which would lose fields of a newer Kubernetes.
fn child(metadata: ObjectMeta, spec: Value) -> Child {
    let resource = ApiResource::erase::<Pod>(&());
    let mut object = DynamicObject::new("", &resource);
    object.metadata = metadata;
    object.data = json!({"spec": spec});
    Child { resource, object }
}
