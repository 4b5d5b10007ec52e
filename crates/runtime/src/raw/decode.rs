//! One object from its own text, within bounds of our own. What does not decode has a name, and no
//! word of its content in what is said of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use super::split::{MAX_OBJECT_BYTES, RawObject};

/// How many levels an object may nest: below the 128 at which the decoder gives up, so that what is
/// taken in can also be written within something else.
pub(crate) const MAX_DEPTH: usize = 120;

/// An object that cannot be taken in.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct Undecodable {
    /// What is the matter with it; nothing of its content.
    pub error: String,
    /// Its metadata, as far as it can be read.
    pub metadata: Box<ObjectMeta>,
}

/// The object, if it decodes within the bounds.
///
/// # Errors
/// What is known of it, if not.
pub fn decode<K: DeserializeOwned>(object: &RawObject) -> Result<K, Undecodable> {
    let decoded = match object.text() {
        None => Err(format!(
            "it has {} bytes, and no more than {MAX_OBJECT_BYTES} are taken in",
            object.bytes
        )),
        Some(_) if object.depth > MAX_DEPTH => Err(format!(
            "it nests {} levels, and no more than {MAX_DEPTH} are taken in",
            object.depth
        )),
        Some(text) => serde_json::from_slice(text).map_err(|error| without_content(&error)),
    };
    decoded.map_err(|error| Undecodable {
        error,
        metadata: Box::new(object.metadata().map(metadata).unwrap_or_default()),
    })
}

/// What the decoder objects to, without the values that it quotes.
pub(crate) fn without_content(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!("at line {}, column {}", error.line(), error.column());
    match error.classify() {
        // It names a field of ours.
        Category::Data if text.starts_with("missing field") => text,
        Category::Data => format!("a field is not of the type that its kind prescribes, {place}"),
        Category::Syntax => format!("it is not JSON, or nests too deeply, {place}"),
        Category::Eof | Category::Io => format!("it ends early, {place}"),
    }
}

fn metadata(text: &[u8]) -> ObjectMeta {
    if let Ok(metadata) = serde_json::from_slice(text) {
        return metadata;
    }
    let Ok(Value::Object(fields)) = serde_json::from_slice(text) else {
        return ObjectMeta::default();
    };
    let field = |key: &str| {
        fields
            .get(key)
            .and_then(Value::as_str)
            .map(ToOwned::to_owned)
    };
    let labels = fields.get("labels").and_then(Value::as_object);
    let label = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    ObjectMeta {
        name: field("name"),
        namespace: field("namespace"),
        uid: field("uid"),
        resource_version: field("resourceVersion"),
        labels: labels.map(|labels| labels.iter().filter_map(label).collect()),
        ..ObjectMeta::default()
    }
}
