//! The pod of a grant. The request owns it, so that deleting the request ends it even while oz is down; the
//! kubelet ends it as well, by its deadline. It carries the sealed decision, being the first object of a
//! grant that has an effect.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject};
use oz_api::{encode, labels};
use serde_json::{Value, json};

use crate::access::grant::Grant;
use crate::confine::json::{fields, is_empty, items};
use crate::confine::{Owner, deadline};
use crate::controller::Child;
use crate::mutate::Rendered;

/// The number of seconds by which a pod may start late without another write. The slack of its deadline covers it.
const LATE: i64 = 2;

/// Returns the pod for a grant; `sealed` is the decision as [`Grant::seal`] returned it.
#[must_use]
pub fn pod(grant: &Grant, rendered: &Rendered, sealed: String) -> Child {
    let owner = Owner::from_request(&grant.request);
    let mut annotations = rendered.annotations.clone();
    annotations.insert(labels::GRANT.to_owned(), sealed);
    let mut metadata = ObjectMeta {
        labels: Some(rendered.labels.clone()),
        annotations: Some(annotations),
        ..owner.owned(grant.object_name())
    };
    owner.mark(&mut metadata);
    let mut spec = rendered.spec.clone();
    let seconds = deadline::ending_by(grant.granted_at, grant.window.until);
    deadline::limit(&mut spec, seconds);
    child(metadata, Value::Object(spec))
}

/// Returns the change for a pod that started so late that its deadline would be past the agreed instant;
/// `None` if it did not.
#[must_use]
pub fn lowered_deadline(grant: &Grant, live: &Pod) -> Option<Child> {
    let started = live.status.as_ref()?.start_time.as_ref()?.0;
    let set = live.spec.as_ref()?.active_deadline_seconds?;
    let wanted = deadline::ending_by(started, grant.window.until);
    (set > wanted + LATE).then(|| {
        let metadata = Owner::from_request(&grant.request).metadata(grant.object_name());
        child(metadata, json!({"activeDeadlineSeconds": wanted}))
    })
}

/// Returns the digest of the fields that can be changed in a running pod and alter its identity: images and
/// limits. The API server rejects changes of all other fields.
/// See <https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement>.
#[must_use]
pub fn changeable(spec: &Value) -> String {
    let containers = |list: &str| -> Vec<Value> {
        items(&spec[list])
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
    let containers = |list: &str| -> Vec<Value> { items(&spec[list]).map(container).collect() };
    let all = ["initContainers", "containers", "ephemeralContainers"].map(containers);
    let volumes: Vec<Value> = items(&spec["volumes"])
        .filter(|volume| !is_of_token(&volume["name"]))
        .map(|volume| {
            let fields: Vec<&String> = fields(volume).map(|(name, _)| name).collect();
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
    let env: Vec<Value> = items(&one["env"])
        .map(|one| json!([one["name"], given(&one["value"])]))
        .collect();
    let mounts: Vec<Value> = items(&one["volumeMounts"])
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
    (!is_empty(value) && *value != "").then_some(value)
}

/// Creates a child from JSON and not through the type, which would lose fields of a newer Kubernetes.
fn child(metadata: ObjectMeta, spec: Value) -> Child {
    let resource = ApiResource::erase::<Pod>(&());
    let mut object = DynamicObject::new("", &resource);
    object.metadata = metadata;
    object.data = json!({"spec": spec});
    Child { resource, object }
}
