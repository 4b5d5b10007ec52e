//! A child in its stored form: its JSON, and only the values that the store needs. A decoded object
//! needs several times the space, and most are read once or twice in their life.

use std::borrow::Cow;
use std::io::{ErrorKind, Write};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject, DynamicResourceScope};
use oz_api::labels;
use oz_runtime::raw::TOO_LARGE;
use oz_runtime::{AsText, mark};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A child in its stored form: without its decoded content.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The metadata: name, namespace, UID and resource version only.
    metadata: ObjectMeta,
    owner: Option<Box<str>>,
    /// See [`Packed::controller`].
    controller: Option<Box<str>>,
    json: Box<str>,
    /// See [`Packed::marks`].
    marks: Box<[u64]>,
}

/// The longest JSON of a child that is stored: more than any child that oz creates. Objects that other
/// users mark as children may take six bytes there for one in etcd, and are stored as long as they
/// exist.
const MAX_BYTES: usize = 2 * 1024 * 1024;

impl Packed {
    /// Packs an object that the engine wrote: of an object that is too large, only the metadata is
    /// stored.
    pub(crate) fn new(object: DynamicObject) -> Self {
        let metadata = object.metadata.clone();
        Self::within_bounds(object).unwrap_or_else(|| Self::unread(metadata))
    }

    fn within_bounds(mut object: DynamicObject) -> Option<Self> {
        object.metadata.managed_fields = None;
        let mut json = Bounded::default();
        serde_json::to_writer(&mut json, &object).ok()?;
        let json = String::from_utf8(json.0).ok()?;
        Some(Self::from_object(&object, json))
    }

    fn from_object(object: &DynamicObject, json: String) -> Self {
        let metadata = &object.metadata;
        Self {
            metadata: ObjectMeta {
                name: metadata.name.clone(),
                namespace: metadata.namespace.clone(),
                uid: metadata.uid.clone(),
                resource_version: metadata.resource_version.clone(),
                ..ObjectMeta::default()
            },
            owner: labels::owner_uid(metadata).map(Into::into),
            controller: controller_of(metadata).map(Into::into),
            json: json.into(),
            marks: marks_of(&object.data).into(),
        }
    }

    /// The conversion for objects without recent reads, which need less space.
    pub(crate) const AS_TEXT: AsText<Self> = AsText {
        write: |packed| Some(packed.json.as_bytes().to_vec()),
        read: |text| {
            let json = std::str::from_utf8(text).ok()?;
            let object = serde_json::from_str(json).ok()?;
            Some(Self::from_object(&object, json.to_owned()))
        },
    };

    /// Returns two marks for each field but the metadata: the presence of the field ([`mark`] of its name), and its
    /// value ([`mark_of`]).
    pub(crate) fn marks(&self) -> Vec<u64> {
        self.marks.to_vec()
    }

    /// Packs an object with only its metadata, because the rest cannot be read.
    pub(crate) fn unread(metadata: ObjectMeta) -> Self {
        let object = DynamicObject {
            types: None,
            metadata,
            data: serde_json::Value::Null,
        };
        // The metadata was decoded from JSON.
        let json = serde_json::to_string(&object).unwrap_or_default();
        Self::from_object(&object, json)
    }

    /// Returns the UID of the owner of the object.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Returns the UID in the controller reference of the object. Without a reference, returns the UID
    /// in the label with which the object names its owner, and otherwise [`Packed::ORPHAN`]: the object
    /// may be adopted.
    pub(crate) fn controller(&self) -> Option<&str> {
        self.controller.as_deref().or(Some(Self::ORPHAN))
    }

    /// The group of objects without a controller and without a label that names their owner. It
    /// replaces a UID.
    pub(crate) const ORPHAN: &str = "";

    /// Checks whether the object may have this label; only the unpacked object shows whether it
    /// has.
    pub(crate) fn may_have_label(&self, name: &str, value: &str) -> bool {
        self.json.contains(&format!("\"{name}\":\"{value}\""))
    }

    /// Checks whether the object has this value in this field. This searches the text, without unpacking
    /// it: members are sorted, so that one value has one text. Unpack the object to exclude a false
    /// match.
    #[must_use]
    pub fn has(&self, field: &str, value: &Value) -> bool {
        self.json.contains(&format!("\"{field}\":{value}"))
    }

    /// Returns the object after `change` has removed parts of it.
    #[must_use]
    pub fn changed(self, change: impl FnOnce(&mut DynamicObject)) -> Self {
        match self.unpack() {
            Some(mut object) => {
                change(&mut object);
                Self::new(object)
            }
            None => self,
        }
    }

    /// Returns the original object; `None` is impossible for an object from [`Packed::new`].
    #[must_use]
    pub fn unpack(&self) -> Option<DynamicObject> {
        serde_json::from_str(&self.json).ok()
    }
}

/// Returns the mark of objects with this value in this field.
pub(crate) fn mark_of(field: &str, value: &Value) -> u64 {
    mark((field, value))
}

fn marks_of(data: &Value) -> Vec<u64> {
    let fields = data.as_object().into_iter().flatten();
    fields
        .flat_map(|(field, value)| [mark(field.as_str()), mark_of(field, value)])
        .collect()
}

/// Returns the UID of the controller of the object, or of the owner that the object names in the
/// label that composite controllers generate.
fn controller_of(metadata: &ObjectMeta) -> Option<&str> {
    match labels::controller(metadata) {
        Some(controller) => Some(&controller.uid),
        None => labels::said_controller(metadata),
    }
}

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = DynamicObject::deserialize(deserializer)?;
        Self::within_bounds(object).ok_or_else(|| D::Error::custom(TOO_LARGE))
    }
}

/// A text of at most [`MAX_BYTES`].
#[derive(Default)]
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + part.len() > MAX_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        if self.0.capacity() - self.0.len() < part.len() {
            // Grows by a quarter each time, as the splitter does.
            self.0.reserve_exact(self.0.len() / 4 + part.len());
        }
        self.0.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
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
    use oz_runtime::raw::{KEPT_LABELS, RawObject, decode};

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
        let marks = |value: &str| [mark("type"), mark_of("type", &json!(value))];
        let has = |mark: &u64| packed.marks().contains(mark);
        assert!(marks("Opaque").iter().all(has) && !marks("other").iter().all(has));
        let text = (Packed::AS_TEXT.write)(&packed).unwrap();
        let again = (Packed::AS_TEXT.read)(&text).unwrap();
        assert_eq!(format!("{again:?}"), format!("{packed:?}"));
        let unpacked = serde_json::to_value(packed.unpack().unwrap()).unwrap();
        assert_eq!(unpacked, wanted.take());
    }

    #[test]
    fn the_marks_of_children_are_kept_however_many_labels_there_are() {
        let marks = [
            labels::MANAGED_BY,
            labels::OWNER_KIND,
            labels::OWNER_UID,
            labels::OWNER_NAME,
            labels::GRANT,
        ];
        assert_eq!(KEPT_LABELS, marks);
    }

    #[test]
    fn a_child_that_is_too_large_to_be_kept_is_named_and_known_by_its_metadata() {
        // Six bytes in JSON for one in etcd.
        let name = "\u{0}".repeat(600_000);
        let role = json!({
            "metadata": {
                "name": "a", "uid": "u", "labels": {"oz.wizardofoz.co/owner-uid": "owner"},
            },
            "rules": [{"resourceNames": [name], "verbs": ["get"]}],
        });
        let bad = decode::<Packed>(&RawObject::new(role.to_string().as_bytes())).unwrap_err();
        assert!(bad.error.contains("too large"), "{bad}");
        assert_eq!(bad.metadata.name.as_deref(), Some("a"));
        let packed = Packed::new(serde_json::from_value(role).unwrap());
        assert_eq!(packed.owner(), Some("owner"));
        assert!(packed.json.len() < 200);
        assert!(packed.marks().is_empty());
    }
}
