//! Decodes one object from its own text, within bounds of oz. The error for an object that does not
//! decode contains its name, and none of its content.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use super::metadata;
use super::scan::{Size, Unbounded};
use super::split::{MAX_OBJECT_BYTES, RawObject};

/// The error for an object that exceeds the space of the store.
pub const TOO_LARGE: &str = "it is too large to be kept";

/// The reason for which an object is not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// The text is too long.
    #[error("it has {bytes} bytes, and the maximum is {MAX_OBJECT_BYTES}")]
    Long {
        /// The length.
        bytes: usize,
    },
    /// The object exceeds a limit.
    #[error(transparent)]
    Unbounded(#[from] Unbounded),
    /// The object does not have the form of its kind.
    #[error("{}", without_content(_0))]
    Malformed(#[from] serde_json::Error),
    /// The object has no name, namespace or UID.
    #[error("it has no metadata.{field}; the API server stores no such object")]
    Unidentified {
        /// The missing field.
        field: &'static str,
    },
}

/// An object that cannot be decoded.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct Undecodable {
    /// The reason, without any of the object's content.
    pub error: String,
    /// The object's metadata, as far as it can be read.
    pub metadata: Box<ObjectMeta>,
}

/// Decodes an object within the bounds.
///
/// # Errors
/// The reason and the metadata, if the object does not decode.
pub fn decode<K: DeserializeOwned>(object: &RawObject) -> Result<K, Undecodable> {
    read(object).map_err(|error| Undecodable {
        error: error.to_string(),
        metadata: Box::new(metadata_of(object).unwrap_or_default()),
    })
}

fn read<K: DeserializeOwned>(object: &RawObject) -> Result<K, Unreadable> {
    let bytes = object.bytes;
    let text = object.text().ok_or(Unreadable::Long { bytes })?;
    object.size.bounded()?;
    Ok(serde_json::from_slice(text)?)
}

/// Returns as much of the object's metadata as can be read within bounds, if it has any.
pub(crate) fn metadata_of(object: &RawObject) -> Option<ObjectMeta> {
    object.metadata().map(metadata::read)
}

/// The text around the objects of a list.
#[derive(Deserialize)]
struct Around {
    #[serde(default)]
    metadata: ListEnd,
}

/// The end of a page of a list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListEnd {
    /// The version from which a watch continues.
    pub(crate) resource_version: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl ListEnd {
    /// Returns the token of the next page, if there is one.
    pub(crate) fn next(&self) -> Option<String> {
        self.next.clone().filter(|token| !token.is_empty())
    }
}

/// Decodes the [`Piece::Around`](super::Piece::Around) of a list.
///
/// # Errors
/// When it does not decode.
pub(crate) fn list_end(text: &[u8]) -> serde_json::Result<ListEnd> {
    serde_json::from_slice(text).map(|around: Around| around.metadata)
}

/// Returns the message of the decoder without the values that it quotes.
pub(crate) fn without_content(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!("at line {}, column {}", error.line(), error.column());
    match error.classify() {
        // The message contains the name of a field of oz.
        Category::Data if text.starts_with("missing field") => text,
        Category::Data if text.starts_with(TOO_LARGE) => TOO_LARGE.to_owned(),
        Category::Data => format!("a field is not of the type that its kind prescribes, {place}"),
        Category::Syntax => format!("it is not JSON, or nests too deeply, {place}"),
        Category::Eof | Category::Io => format!("it ends early, {place}"),
    }
}

/// Decodes a part of an object, if it is within the bounds for a whole object.
pub(crate) fn value(text: &str) -> Option<Value> {
    Size::measure(text.as_bytes()).bounded().ok()?;
    serde_json::from_str(text).ok()
}
