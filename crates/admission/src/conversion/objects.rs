//! The conversion of one object: the input of the function, the fields that it may change, and the message
//! of a failure.

use serde::{Deserialize, Serialize};
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

use super::{ConvertAny, ConvertError};
use crate::{lean::without_managed_fields, review::Cx};

/// The fields that are read from every object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow, default)]
    metadata: HeadMetadata<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HeadMetadata<'a> {
    name: String,
    namespace: Option<String>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

/// An object with the fields that the function does not receive.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    rest: Map<String, Value>,
    metadata: WholeMetadata<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WholeMetadata<'a> {
    #[serde(flatten)]
    rest: Map<String, Value>,
    managed_fields: &'a RawValue,
}

/// The error for objects that are not converted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotConverted {
    /// The request is for another group than the definition.
    #[error("failed to convert to {to}: this is for {definition}")]
    Misdirected {
        /// The requested version.
        to: String,
        /// The definition.
        definition: String,
    },
    /// An object does not decode.
    #[error("failed to convert an object to {to}: {source}")]
    Malformed {
        /// The requested version.
        to: String,
        /// The error of the decoder.
        source: serde_json::Error,
    },
    /// The conversion of an object failed.
    #[error("failed to convert {kind} {name} from {from} to {to}: {why}")]
    Failed {
        /// The kind of the object.
        kind: String,
        /// The object, with its namespace.
        name: String,
        /// The version of the object.
        from: String,
        /// The requested version.
        to: String,
        /// The error of the conversion.
        why: ConvertError,
    },
    /// The conversion did not complete.
    #[error("failed to convert objects of {definition}: the conversion {ended}")]
    Incomplete {
        /// The definition.
        definition: String,
        /// The end of the conversion.
        ended: &'static str,
    },
}

/// Converts `raw` to the version `to`.
///
/// # Errors
/// The reason of the failure, with the name of the object.
pub(crate) async fn convert(
    handler: &dyn ConvertAny,
    cx: &Cx,
    raw: &RawValue,
    to: &str,
) -> Result<Box<RawValue>, NotConverted> {
    let head: Head<'_> =
        serde_json::from_str(raw.get()).map_err(|source| NotConverted::Malformed {
            to: to.to_owned(),
            source,
        })?;
    if head.api_version == to {
        return Ok(raw.to_owned());
    }
    let converted = convert_one(handler, cx, raw, &head, to).await;
    converted.map_err(|why| {
        let name = &head.metadata.name;
        NotConverted::Failed {
            kind: head.kind.clone(),
            name: match &head.metadata.namespace {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name.clone(),
            },
            from: head.api_version.clone(),
            to: to.to_owned(),
            why,
        }
    })
}

async fn convert_one(
    handler: &dyn ConvertAny,
    cx: &Cx,
    raw: &RawValue,
    head: &Head<'_>,
    to: &str,
) -> Result<Box<RawValue>, ConvertError> {
    let lean = without_managed_fields(raw);
    let text = lean.as_deref().unwrap_or(raw).get();
    let mut object: Value = serde_json::from_str(text)?;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    let before = object["metadata"].clone();
    let converted = handler.convert(cx, object, to).await?;
    let Value::Object(mut converted) = converted else {
        return Err("the conversion made no object of it".into());
    };
    if converted.get("kind").and_then(Value::as_str) != Some(&head.kind) {
        return Err("the conversion changed its kind".into());
    }
    let metadata = converted.remove("metadata").unwrap_or_default();
    unchanged(&before, &metadata)?;
    converted.insert("apiVersion".to_owned(), to.into());
    let Some(managed_fields) = head.metadata.managed_fields else {
        converted.insert("metadata".to_owned(), metadata);
        return Ok(to_raw_value(&converted)?);
    };
    let rest = match metadata {
        Value::Object(rest) => rest,
        _ => Map::new(),
    };
    Ok(to_raw_value(&Whole {
        rest: converted,
        metadata: WholeMetadata {
            rest,
            managed_fields,
        },
    })?)
}

/// Checks that the metadata is unchanged except for labels and annotations.
fn unchanged(before: &Value, after: &Value) -> Result<(), ConvertError> {
    let none = Map::new();
    let (old, new) = (
        before.as_object().unwrap_or(&none),
        after.as_object().unwrap_or(&none),
    );
    let may_change = |field: &String| field == "labels" || field == "annotations";
    let mut fields = old.keys().chain(new.keys());
    let changed = fields.find(|field| !may_change(field) && old.get(*field) != new.get(*field));
    match changed {
        Some(field) => Err(format!(
            "the conversion changed metadata.{field}; only labels and annotations may change"
        )
        .into()),
        None => Ok(()),
    }
}
