//! A child as it is kept: its JSON, and beside it only what the store asks for. A decoded object
//! takes several times the room, and most are read once or twice in their life.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject, DynamicResourceScope};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::children::owner_uid;

/// A child without its decoded content.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    /// Name, namespace, UID and resource version only.
    metadata: ObjectMeta,
    owner: Option<Box<str>>,
    json: Box<str>,
}

impl Packed {
    pub(crate) fn new(mut object: DynamicObject) -> Self {
        object.metadata.managed_fields = None;
        let metadata = &object.metadata;
        Self {
            metadata: ObjectMeta {
                name: metadata.name.clone(),
                namespace: metadata.namespace.clone(),
                uid: metadata.uid.clone(),
                resource_version: metadata.resource_version.clone(),
                ..ObjectMeta::default()
            },
            owner: owner_uid(&object).map(Into::into),
            // It came as JSON.
            json: serde_json::to_string(&object).unwrap_or_default().into(),
        }
    }

    /// One of which only the metadata can be read.
    pub(crate) fn unread(metadata: ObjectMeta) -> Self {
        Self::new(DynamicObject {
            types: None,
            metadata,
            data: serde_json::Value::Null,
        })
    }

    /// UID of the object that it was made for.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Whether it has this value in this field. Looked up in its text, without unpacking it: members are
    /// sorted, so that one value has one text. What only looks so is told when it is unpacked.
    pub(crate) fn has(&self, field: &str, value: &Value) -> bool {
        self.json.contains(&format!("\"{field}\":{value}"))
    }

    /// The object as it was; `None` is impossible for one that was made by [`Packed::new`].
    pub(crate) fn unpack(&self) -> Option<DynamicObject> {
        serde_json::from_str(&self.json).ok()
    }
}

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DynamicObject::deserialize(deserializer).map(Self::new)
    }
}

impl Resource for Packed {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }
    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }
    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }
    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_packed_child_comes_out_as_it_was_but_for_managed_fields() {
        let mut wanted = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "a", "namespace": "dev", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-11-21T10:00:00Z",
                "labels": {"oz.wizardofoz.co/owner-uid": "owner"},
                "annotations": {"x": "y"},
            },
            "data": {"key": "dmFsdWU="}, "type": "Opaque",
        });
        let mut given = wanted.clone();
        given["metadata"]["managedFields"] = json!([{"manager": "m", "operation": "Update"}]);
        let packed: Packed = serde_json::from_value(given).unwrap();
        assert_eq!(packed.owner(), Some("owner"));
        assert_eq!(packed.meta().uid.as_deref(), Some("u"));
        assert!(packed.has("data", &json!({"key": "dmFsdWU="})));
        assert!(!packed.has("data", &json!({"key": "other"})));
        let unpacked = serde_json::to_value(packed.unpack().unwrap()).unwrap();
        assert_eq!(unpacked, wanted.take());
    }
}
