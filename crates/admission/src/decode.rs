//! The conversion of the raw object of a request into the type of an extension.
//!
//! An object that does not decode is denied here, with the path of the field: an extension never receives
//! an empty object instead of a broken one.

use kube::core::GroupVersionKind;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::verdict::Rejection;

/// The reason of a denial for an object that does not decode.
pub const DECODE_FAILED: &str = "DecodeFailed";
/// The reason of a denial for an object of another kind than the one for which the hook was declared.
pub const UNEXPECTED_KIND: &str = "UnexpectedKind";

/// Decodes `raw`; `which` is `object` or `oldObject`.
pub(crate) fn decode<K: DeserializeOwned>(
    raw: &RawValue,
    kind: &GroupVersionKind,
    which: &str,
) -> Result<K, Rejection> {
    check_type(raw, kind, which)?;
    let mut reader = serde_json::Deserializer::from_str(raw.get());
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        // The path of the root is "."; of an error outside any field, "?".
        let path = match error.path().to_string() {
            root if root == "." || root == "?" => String::new(),
            path => path,
        };
        let at = if path.is_empty() {
            String::new()
        } else {
            format!(" at {path}")
        };
        let problem = error.inner();
        Rejection::bad_request(
            DECODE_FAILED,
            format!("failed to decode {which} as {}{at}: {problem}", kind.kind),
        )
        .cause(path, "FieldValueInvalid", problem.to_string())
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeHead {
    api_version: String,
    kind: String,
}

/// Checks the type of an object: the types of the API crates decode `{}` without an error, as an object
/// without content. An object from the API server always names its type.
fn check_type(raw: &RawValue, kind: &GroupVersionKind, which: &str) -> Result<(), Rejection> {
    let refuse = |field: &str, problem: String| {
        let message = format!(
            "failed to decode {which} as {} at {field}: {problem}",
            kind.kind
        );
        Rejection::bad_request(DECODE_FAILED, message).cause(field, "FieldValueInvalid", problem)
    };
    let head: TypeHead =
        serde_json::from_str(raw.get()).map_err(|error| refuse("kind", error.to_string()))?;
    let api_version = match kind.group.as_str() {
        "" => kind.version.clone(),
        group => format!("{group}/{}", kind.version),
    };
    if head.kind != kind.kind {
        return Err(refuse(
            "kind",
            format!("{:?} is not {:?}", head.kind, kind.kind),
        ));
    }
    if head.api_version != api_version {
        let problem = format!("{:?} is not {api_version:?}", head.api_version);
        return Err(refuse("apiVersion", problem));
    }
    Ok(())
}

/// The fields of an object that are read before it is decoded.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Names {
    pub(crate) metadata: NamesInMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NamesInMetadata {
    pub(crate) name: Option<String>,
    pub(crate) generate_name: Option<String>,
    pub(crate) namespace: Option<String>,
}

impl Names {
    /// Reads leniently: [`decode`] decides whether the object is well-formed.
    pub(crate) fn parse_lenient(raw: Option<&RawValue>) -> Self {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn refusal(object: serde_json::Value) -> Rejection {
        let raw = serde_json::value::to_raw_value(&object).unwrap();
        let kind = GroupVersionKind::gvk("", "v1", "Pod");
        decode::<Pod>(&raw, &kind, "object").unwrap_err()
    }

    #[test]
    fn a_wrong_type_is_refused_with_the_path_of_the_field() {
        let rejection = refusal(json!({
            "apiVersion": "v1", "kind": "Pod",
            "spec": {"containers": [{"name": "a"}, {"name": "b", "image": 7}]},
        }));
        assert_eq!((rejection.code, &*rejection.reason), (400, DECODE_FAILED));
        assert_eq!(rejection.causes[0].field, "spec.containers[1].image");
        assert!(
            rejection.message.contains("at spec.containers[1].image"),
            "{}",
            rejection.message
        );
    }

    #[test]
    fn an_object_of_another_kind_is_refused() {
        let rejection = refusal(json!({"apiVersion": "v1", "kind": "Secret"}));
        assert_eq!(rejection.code, 400);
    }

    #[test]
    fn an_empty_object_is_refused_rather_than_passed_on_as_an_empty_pod() {
        assert_eq!(refusal(json!({})).code, 400);
    }

    #[test]
    fn names_are_found_in_an_object_that_does_not_decode() {
        let raw = serde_json::value::to_raw_value(
            &json!({"metadata": {"generateName": "web-"}, "spec": 7}),
        )
        .unwrap();
        assert_eq!(
            Names::parse_lenient(Some(&raw))
                .metadata
                .generate_name
                .as_deref(),
            Some("web-")
        );
    }
}
