//! The expiry of a child. The operator writes it on the child with a seal at creation, so that the child expires at
//! that instant regardless of the later state of the function.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_core::controller::{Child, Key, Live};
use oz_core::lifecycle::seal::{self, Keys, Purpose, SealError};
use oz_core::lifecycle::window::has_come;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Annotation on a child: its expiry, sealed.
pub const UNTIL: &str = "oz.wizardofoz.co/until";
const PURPOSE: Purpose = Purpose::ChildUntil;

/// The sealed statement of an expiry.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Until {
    /// The UID of the parent.
    parent: String,
    group: String,
    kind: String,
    namespace: Option<String>,
    name: Option<String>,
    /// The expiry; `None` if the child no longer expires.
    until: Option<Timestamp>,
}

impl Until {
    fn new(parent: &str, key: Key, until: Option<Timestamp>) -> Self {
        let Key {
            group,
            kind,
            namespace,
            name,
        } = key;
        Self {
            parent: parent.to_owned(),
            group,
            kind,
            namespace,
            name,
            until,
        }
    }
}

/// Returns the expiry of a child of this parent, if a valid seal states one. A child with an expiry that an earlier
/// release sealed has expired: its expiry is not trusted, and its function creates it again.
#[must_use]
pub fn read(keys: &Keys, parent: &str, child: &Live) -> Option<Timestamp> {
    let annotations = child.object.metadata.annotations.as_ref()?;
    let text = annotations.get(UNTIL)?;
    let (said, until) = match seal::open::<Until>(keys, PURPOSE, text) {
        Ok(said) => {
            let until = said.until;
            (said, until)
        }
        Err(SealError::Retired) => {
            let said: Until = serde_json::from_str(text).ok()?;
            let until = said.until.map(|_| Timestamp::UNIX_EPOCH);
            (said, until)
        }
        Err(_) => return None,
    };
    let expected = Until::new(parent, child.key(), said.until);
    if said == expected { until } else { None }
}

/// Returns the UID of the parent in the statement of a child that expires, without verification of the seal: for a
/// caller that lacks the key, and deletes children that the holder of the key no longer deletes.
#[must_use]
pub fn parent_of(child: &ObjectMeta) -> Option<String> {
    let said: Until = serde_json::from_str(child.annotations.as_ref()?.get(UNTIL)?).ok()?;
    said.until.map(|_| said.parent)
}

/// Seals the statement of a child with these keys, regardless of its seal: for a caller that lacks the key of that
/// seal, and explains the actions of its holder.
pub fn take_on_trust(keys: &Keys, child: &mut Live) {
    let annotations = child.object.metadata.annotations.as_mut();
    let text = annotations.and_then(|annotations| annotations.get_mut(UNTIL));
    if let Some(text) = text
        && let Ok(said) = serde_json::from_str::<Until>(text)
        && let Ok(sealed) = seal::seal(keys, PURPOSE, &said)
    {
        *text = sealed;
    }
}

/// Replaces the statement by the plain instant: for a caller that shows a desired child, and cannot seal as the
/// operator does.
pub fn unseal(child: &mut Child) {
    let annotations = child.object.metadata.annotations.as_mut();
    if let Some(text) = annotations.and_then(|annotations| annotations.get_mut(UNTIL))
        && let Ok(said) = serde_json::from_str::<Until>(text)
    {
        text.clear();
        text.extend(said.until.map(|until| until.to_string()));
    }
}

/// Writes the expiry of a child on the child. A child that had a statement keeps one, also if it no longer expires.
///
/// # Errors
/// If the statement cannot be sealed.
pub fn write(
    keys: &Keys,
    parent: &str,
    child: &mut Child,
    until: Option<Timestamp>,
    live: Option<&Live>,
) -> Result<(), SealError> {
    let before = live.and_then(|live| live.object.metadata.annotations.as_ref()?.get(UNTIL));
    let known = live.and_then(|live| read(keys, parent, live));
    let text = match before {
        // A statement with a seal of another key is the same statement.
        Some(before) if known == until && (until.is_some() || before.is_empty()) => before.clone(),
        _ if until.is_some() => seal::seal(keys, PURPOSE, &Until::new(parent, child.key(), until))?,
        Some(_) => String::new(),
        None => return Ok(()),
    };
    let annotations = child.object.metadata.annotations.get_or_insert_default();
    annotations.insert(UNTIL.to_owned(), text);
    Ok(())
}

/// Returns the instants from now on in the fields of a parent, the earliest first. At each, or right after it, a
/// function may return another response. Instants of the API server or of a status are not included.
#[must_use]
pub fn instants(parent: &Value, now: Timestamp) -> Vec<Timestamp> {
    let mut found = BTreeSet::new();
    let fields = parent.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status"));
    let mut rest: Vec<&Value> = fields.map(|(_, value)| value).collect();
    while let Some(value) = rest.pop() {
        match value {
            // Instants are not longer, and most texts are.
            Value::String(text) if text.len() <= LONGEST_INSTANT => {
                let instant = text.parse::<Timestamp>().ok();
                // The current instant is included: the response may differ right after it.
                found.extend(instant.filter(|instant| has_come(*instant, now)));
            }
            Value::Array(items) => rest.extend(items),
            Value::Object(fields) => rest.extend(fields.values()),
            _ => {}
        }
    }
    found.into_iter().collect()
}

/// The maximum length of a text with an instant, in bytes.
const LONGEST_INSTANT: usize = 64;
