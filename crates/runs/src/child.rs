//! The objects of runs and workspaces, which are built as JSON, as children.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use oz_api::labels;
use oz_core::controller::Child;
use serde_json::{Value, json};

/// Returns an object as a child of kind `K`. `None` only for an object without metadata, which the callers never
/// create.
pub(super) fn child<K>(object: Value) -> Option<Child>
where
    K: Resource<DynamicType = ()>,
{
    let object: DynamicObject = serde_json::from_value(object).ok()?;
    let resource = ApiResource::erase::<K>(&());
    Some(Child { resource, object })
}

/// Creates an object of kind `K`.
pub(super) fn object<K>(metadata: &ObjectMeta, spec: Value) -> Value
where
    K: Resource<DynamicType = ()>,
{
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": metadata,
        "spec": spec,
    })
}

/// Adds the label that has the name of the owner, and annotations.
pub(super) fn labelled(
    mut metadata: ObjectMeta,
    (label, owner): (&str, &str),
    annotations: &[(&str, &str)],
) -> ObjectMeta {
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(label.to_owned(), labels::value(owner));
    let annotations = annotations.iter();
    let annotations = annotations.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    metadata
        .annotations
        .get_or_insert_default()
        .extend(annotations);
    metadata
}

/// Creates a Job with one pod at a time, which has at most this number of retries and seconds.
pub(super) fn job(
    metadata: &ObjectMeta,
    pod: Value,
    retries: i32,
    deadline_seconds: Option<i64>,
) -> Value {
    let spec =
        json!({"backoffLimit": retries, "completions": 1, "parallelism": 1, "template": pod});
    let mut job = object::<Job>(metadata, spec);
    if let Some(seconds) = deadline_seconds {
        job["spec"]["activeDeadlineSeconds"] = json!(seconds);
    }
    job
}
