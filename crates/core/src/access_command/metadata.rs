//! A pod's metadata for a template: under the names that the fields have in Go. A mark distinguishes
//! structures from maps, since a template may read a missing key only from a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::Value;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

/// The key that marks a structure; its value is the structure's type. No template can name it.
pub(super) const STRUCTURE: &str = "\0structure";

/// Returns the initial value of `.`: one field, `Metadata`.
pub(super) fn root(metadata: &ObjectMeta) -> Value {
    structure("AccessCommand", [("Metadata", object_meta(metadata))])
}

/// Returns the type of a structure; `None` for every other value.
pub(super) fn type_of_structure(value: &Value) -> Option<&str> {
    value.field(STRUCTURE).and_then(Value::as_str)
}

/// Returns the length of the longest text that a template can read, in bytes.
pub(super) fn longest_text(metadata: &ObjectMeta) -> usize {
    let maps = [&metadata.labels, &metadata.annotations];
    let entries = maps.into_iter().flatten().flatten();
    let entries = entries.flat_map(|(key, value)| [key, value]);
    let owners = metadata.owner_references.iter().flatten();
    let owners =
        owners.flat_map(|owner| [&owner.api_version, &owner.kind, &owner.name, &owner.uid]);
    let finalizers = metadata.finalizers.iter().flatten();
    let texts = entries.chain(owners).chain(finalizers);
    texts.map(String::len).max().unwrap_or(0)
}

/// Returns metadata with values in all fields, for the trial of a command.
pub(super) fn sample() -> ObjectMeta {
    let pair = || Some(BTreeMap::from([("app".to_owned(), "example".to_owned())]));
    ObjectMeta {
        name: Some("example-6d4b75cb6d-hx9kq".to_owned()),
        generate_name: Some("example-6d4b75cb6d-".to_owned()),
        namespace: Some("example".to_owned()),
        uid: Some("0b6f9ab6-7f2c-4a3e-9c1d-3f0e6c5b4a21".to_owned()),
        resource_version: Some("1".to_owned()),
        generation: Some(1),
        creation_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
        labels: pair(),
        annotations: pair(),
        owner_references: Some(vec![OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: "example-6d4b75cb6d".to_owned(),
            uid: "5f1c7c1e-9a55-4d0b-8a65-0d7e3b9f4c10".to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        finalizers: Some(vec!["example.com/finalizer".to_owned()]),
        ..ObjectMeta::default()
    }
}

/// Converts every field but `ManagedFields`.
fn object_meta(metadata: &ObjectMeta) -> Value {
    structure(
        "v1.ObjectMeta",
        [
            ("Name", string(metadata.name.as_deref())),
            ("GenerateName", string(metadata.generate_name.as_deref())),
            ("Namespace", string(metadata.namespace.as_deref())),
            ("SelfLink", string(metadata.self_link.as_deref())),
            ("UID", string(metadata.uid.as_deref())),
            (
                "ResourceVersion",
                string(metadata.resource_version.as_deref()),
            ),
            ("Generation", Value::Int(metadata.generation.unwrap_or(0))),
            (
                "CreationTimestamp",
                time(metadata.creation_timestamp.as_ref()),
            ),
            (
                "DeletionTimestamp",
                metadata
                    .deletion_timestamp
                    .as_ref()
                    .map_or(Value::Nil, |at| time(Some(at))),
            ),
            (
                "DeletionGracePeriodSeconds",
                metadata
                    .deletion_grace_period_seconds
                    .map_or(Value::Nil, Value::Int),
            ),
            ("Labels", map(metadata.labels.as_ref())),
            ("Annotations", map(metadata.annotations.as_ref())),
            (
                "OwnerReferences",
                list(metadata.owner_references.as_deref(), owner_reference),
            ),
            (
                "Finalizers",
                list(metadata.finalizers.as_deref(), |name| string(Some(name))),
            ),
        ],
    )
}

fn owner_reference(owner: &OwnerReference) -> Value {
    structure(
        "v1.OwnerReference",
        [
            ("APIVersion", string(Some(&owner.api_version))),
            ("Kind", string(Some(&owner.kind))),
            ("Name", string(Some(&owner.name))),
            ("UID", string(Some(&owner.uid))),
            (
                "Controller",
                owner.controller.map_or(Value::Nil, Value::Bool),
            ),
            (
                "BlockOwnerDeletion",
                owner.block_owner_deletion.map_or(Value::Nil, Value::Bool),
            ),
        ],
    )
}

fn structure<const N: usize>(type_: &str, fields: [(&str, Value); N]) -> Value {
    let mut entries = BTreeMap::from(fields.map(|(name, value)| (Arc::from(name), value)));
    entries.insert(Arc::from(STRUCTURE), Value::String(Arc::from(type_)));
    Value::Map(Arc::new(entries))
}

fn string(text: Option<&str>) -> Value {
    Value::String(Arc::from(text.unwrap_or_default()))
}

/// Formats an instant as Go does; an absent one is the first second of the year 1.
fn time(instant: Option<&Time>) -> Value {
    let text = match instant {
        Some(Time(instant)) => instant.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string(),
        None => "0001-01-01 00:00:00 +0000 UTC".to_owned(),
    };
    Value::String(Arc::from(text))
}

fn map(entries: Option<&BTreeMap<String, String>>) -> Value {
    let entries = entries
        .into_iter()
        .flatten()
        .map(|(key, value)| (Arc::from(key.as_str()), string(Some(value))))
        .collect();
    Value::Map(Arc::new(entries))
}

fn list<T>(items: Option<&[T]>, convert: impl Fn(&T) -> Value) -> Value {
    Value::List(items.into_iter().flatten().map(convert).collect())
}
