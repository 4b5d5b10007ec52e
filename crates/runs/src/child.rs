//! The objects of runs and workspaces, which are built as JSON, as children.

use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use oz_api::harness::GROUP;
use oz_api::{Identity, labels};
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

/// Returns the reference to the object of a kind of oz that controls a child.
pub(super) fn owned(kind: &str, owner: &Identity<'_>) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "kind": kind,
        "name": owner.name.as_str(),
        "uid": owner.uid.as_str(),
        "controller": true,
    })
}

/// Adds the labels of [`labels::mark`] to metadata as JSON.
pub(super) fn mark(metadata: &mut Value, kind: &str, owner: &Identity<'_>) {
    metadata["labels"][labels::MANAGED_BY] = json!(labels::OZ);
    metadata["labels"][labels::OWNER_KIND] = json!(kind);
    metadata["labels"][labels::OWNER_UID] = json!(owner.uid.as_str());
    metadata["annotations"][labels::OWNER_NAME] = json!(owner.name.as_str());
}
