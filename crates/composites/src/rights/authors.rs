//! The proof of the authors of a parent, by its stamp.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use oz_api::{Requester, encode, labels};
use oz_core::access::seal::Keys;
use oz_core::access::stamp::{self, StampError};
use serde_json::{Value, json};

use crate::kind::group;
use crate::owner::Owner;

/// Returns the kind that the stamp of a parent covers, in addition to its name.
#[must_use]
pub fn stamped_kind(parent: &DynamicObject) -> String {
    match &parent.types {
        Some(types) => title(&types.kind, group(&types.api_version)),
        None => title("", ""),
    }
}

/// Returns the name of a kind with its group, which differs from the names of oz's own kinds.
fn title(kind: &str, group: &str) -> String {
    format!("{kind}.{group}")
}

/// Returns the digest of the content of a parent that its authors write and its function receives. The digest excludes
/// the status, and the content that the API server or oz write.
#[must_use]
pub fn digest(parent: &DynamicObject) -> String {
    let mut content = parent.data.clone();
    if let Some(fields) = content.as_object_mut() {
        fields.remove("status");
    }
    let metadata = &parent.metadata;
    let texts = |texts: &Option<BTreeMap<String, String>>| -> Value {
        let texts = texts.iter().flatten();
        let others = texts.filter(|(name, _)| !labels::is_own(name));
        others
            .map(|(name, value)| (name.clone(), Value::from(value.clone())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    encode::digest(&json!({
        "content": content,
        "labels": texts(&metadata.labels),
        "annotations": texts(&metadata.annotations),
    }))
}

/// Returns the authors of a parent, if they are proven.
///
/// # Errors
/// If the authors are not proven. The error states the reason.
pub fn authors(keys: &Keys, parent: &DynamicObject) -> Result<Vec<Requester>, StampError> {
    let kind = stamped_kind(parent);
    stamp::authors(keys, &kind, &parent.metadata, &digest(parent))
}

/// Returns the authors of an owner, if they are proven.
pub(crate) fn authors_of(owner: &Owner<'_>) -> Result<Vec<Requester>, StampError> {
    let kind = &owner.rules.family.parent.resource;
    let kind = title(&kind.kind, &kind.group);
    let object = owner.object;
    stamp::authors(owner.rules.keys, &kind, &object.metadata, &digest(object))
}
