//! The part of an object to decode, and the memory that decoding takes.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{hook::HookKind, wire::Request};

/// The maximum memory of a decoded field or list element, in addition to its text: two small allocations
/// and its share of a map.
const NODE_SIZE: usize = 256;
/// The received object, the object to change, and one for the comparison or the patch.
const COPIES_TO_MUTATE: usize = 3;

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    managed_fields: Option<&'a RawValue>,
}

/// The objects of a request without `managedFields`: these contain no data of an object, may be as large as
/// an object can be, and take thirty times as much memory when decoded.
#[derive(Default)]
pub(crate) struct Lean {
    object: Option<Box<RawValue>>,
    old: Option<Box<RawValue>>,
}

impl Lean {
    pub(crate) fn from_request(request: &Request<'_>) -> Self {
        Self {
            object: request.object.and_then(without_managed_fields),
            old: request.old_object.and_then(without_managed_fields),
        }
    }

    pub(crate) fn request<'a>(&'a self, request: Request<'a>) -> Request<'a> {
        Request {
            object: self.object.as_deref().or(request.object),
            old_object: self.old.as_deref().or(request.old_object),
            ..request
        }
    }
}

/// Removes the `managedFields`; `None` if there are none. The decoding decides whether the object is
/// well-formed.
pub(crate) fn without_managed_fields(raw: &RawValue) -> Option<Box<RawValue>> {
    let text = raw.get();
    let object: Object<'_> = serde_json::from_str(text).ok()?;
    let fields = object.metadata?.managed_fields?.get();
    // The value is borrowed from `text`.
    let start = (fields.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let rest = text.get(start + fields.len()..)?;
    RawValue::from_string([text.get(..start)?, "null", rest].concat()).ok()
}

/// Estimates the maximum memory that decoding the objects of a request takes: commas and brackets in text
/// count as fields.
pub(crate) fn cost(request: &Request<'_>, kind: HookKind) -> usize {
    let copies = match kind {
        HookKind::Mutating => COPIES_TO_MUTATE,
        HookKind::Validating => 1,
    };
    request.object.map_or(0, decoded) * copies + request.old_object.map_or(0, decoded)
}

pub(crate) fn decoded(raw: &RawValue) -> usize {
    let text = raw.get();
    let nodes = text.bytes().filter(|byte| b"{[,".contains(byte)).count();
    text.len() + nodes * NODE_SIZE
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json, value::to_raw_value};

    use super::*;

    fn lean(object: &Value) -> Option<Value> {
        let raw = to_raw_value(object).unwrap();
        let lean = without_managed_fields(&raw)?;
        Some(serde_json::from_str(lean.get()).unwrap())
    }

    #[test]
    fn managed_fields_are_left_out_and_nothing_else() {
        let object = json!({
            "a": {"metadata": {"managedFields": [1]}},
            "metadata": {"name": "x", "managedFields": [{"fieldsV1": {"f:a": {}}}], "uid": "y"},
            "spec": {"managedFields": [2]},
        });
        let mut wanted = object.clone();
        wanted["metadata"]["managedFields"] = Value::Null;
        assert_eq!(lean(&object), Some(wanted));
    }

    #[test]
    fn an_object_without_them_is_not_copied() {
        for object in [
            json!({"metadata": {"name": "x"}}),
            json!({"metadata": null}),
            json!({"spec": {}}),
            json!([]),
            json!("metadata"),
            json!({"metadata": {"managedFields": null}}),
        ] {
            assert_eq!(lean(&object), None, "{object}");
        }
    }

    #[test]
    fn many_small_fields_cost_more_than_their_text() {
        let many: Vec<Value> = vec![json!({}); 1000];
        let raw = to_raw_value(&many).unwrap();
        assert!(decoded(&raw) > 1000 * NODE_SIZE);
        let text = to_raw_value(&"x".repeat(1000)).unwrap();
        assert!(decoded(&text) < 1100);
    }
}
