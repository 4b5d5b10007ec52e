//! The metadata of an object that does not decode: its name and its owners, read within bounds,
//! regardless of the rest of the object.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::scan::Size;

/// The maximum number of labels, and of annotations, that remain from metadata that is too large.
const MAX_KEPT: usize = 1_000;
/// The labels that remain at any position: controllers identify their children by them.
pub const KEPT_LABELS: [&str; 5] = [
    "app.kubernetes.io/managed-by",
    "oz.wizardofoz.co/owner-kind",
    "oz.wizardofoz.co/owner-uid",
    "oz.wizardofoz.co/owner-name",
    "oz.wizardofoz.co/grant",
];

/// Returns as much of the metadata as can be read within bounds.
pub(crate) fn read(text: &[u8]) -> ObjectMeta {
    if Size::measure(text).bounded().is_ok()
        && let Ok(metadata) = serde_json::from_slice(text)
    {
        return metadata;
    }
    let Ok(parts) = serde_json::from_slice::<Parts<'_>>(text) else {
        return ObjectMeta::default();
    };
    ObjectMeta {
        name: parts.name.and_then(parsed),
        namespace: parts.namespace.and_then(parsed),
        uid: parts.uid.and_then(parsed),
        resource_version: parts.resource_version.and_then(parsed),
        creation_timestamp: parts.creation_timestamp.and_then(parsed),
        deletion_timestamp: parts.deletion_timestamp.and_then(parsed),
        owner_references: parts.owner_references.and_then(bounded),
        labels: parts.labels.and_then(parsed).map(|Texts(kept)| kept),
        annotations: parts.annotations.and_then(parsed).map(|Texts(kept)| kept),
        ..ObjectMeta::default()
    }
}

/// The parts to read. Each is decoded separately: an error in one part does not affect the others.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parts<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    namespace: Option<&'a RawValue>,
    uid: Option<&'a RawValue>,
    resource_version: Option<&'a RawValue>,
    creation_timestamp: Option<&'a RawValue>,
    deletion_timestamp: Option<&'a RawValue>,
    owner_references: Option<&'a RawValue>,
    labels: Option<&'a RawValue>,
    annotations: Option<&'a RawValue>,
}

fn parsed<T: DeserializeOwned>(part: &RawValue) -> Option<T> {
    serde_json::from_str(part.get()).ok()
}

/// Decodes a part that may be large, if it is within the bounds of an object.
fn bounded<T: DeserializeOwned>(part: &RawValue) -> Option<T> {
    let fits = Size::measure(part.get().as_bytes()).bounded().is_ok();
    fits.then(|| parsed(part)).flatten()
}

/// Strings by their names: at most the number that remains, without values that are not strings.
struct Texts(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Texts;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("labels or annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
                let mut kept = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if kept.len() < MAX_KEPT || KEPT_LABELS.contains(&name.as_str()) {
                        let value = map.next_value::<Box<RawValue>>()?;
                        kept.extend(parsed(&value).map(|value| (name, value)));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Texts(kept))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
