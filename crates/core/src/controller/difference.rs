//! Differences between two JSON values that decide about a write: whether a child already has the desired
//! fields, and the content of a status patch.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde_json::{Map, Value};

/// Checks whether `live` has every field of `desired`, with that value. More fields are fine, inside lists
/// too (the API server fills in defaults); a list must have the same length and order. An empty value equals
/// an absent one, since the API server drops many of them.
#[must_use]
pub fn contains(live: &Value, desired: &Value) -> bool {
    contains_unless(live, desired, is_empty)
}

/// Checks the same, with another rule for the values of `desired` that equal an absent one.
#[must_use]
pub fn contains_unless(live: &Value, desired: &Value, is_absent: fn(&Value) -> bool) -> bool {
    let contains = |(live, desired)| contains_unless(live, desired, is_absent);
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => desired
            .iter()
            .all(|(name, desired)| contains((live.get(name).unwrap_or(&Value::Null), desired))),
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len() && live.iter().zip(desired).all(contains)
        }
        (Value::Null, desired) => is_absent(desired),
        // The field is not desired.
        (_, Value::Null) => true,
        (live, desired) => live == desired,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

/// Returns the JSON merge patch (RFC 7386) that makes `after` of `before`; `None` if they are equal.
/// See <https://www.rfc-editor.org/rfc/rfc7386#section-2>.
#[must_use]
pub fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for (name, after) in after {
        let before = before.get(name).unwrap_or(&Value::Null);
        if let Some(change) = merge_patch(before, after) {
            patch.insert(name.clone(), change);
        }
    }
    for name in before.keys() {
        if !after.contains_key(name) {
            patch.insert(name.clone(), Value::Null);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Checks whether a child has the desired metadata. Owners and finalizers are sets to which others may add,
/// as are labels and annotations.
#[must_use]
pub fn has_metadata(live: &ObjectMeta, desired: &ObjectMeta) -> bool {
    type Pairs = Option<BTreeMap<String, String>>;
    let all_in = |live: &Pairs, desired: &Pairs| {
        let live = |name| live.as_ref().and_then(|live| live.get(name));
        let mut desired = desired.iter().flatten();
        desired.all(|(name, value)| live(name) == Some(value))
    };
    let owners = || live.owner_references.iter().flatten();
    let finalizers = || live.finalizers.iter().flatten();
    let mut desired_owners = desired.owner_references.iter().flatten();
    let mut desired_finalizers = desired.finalizers.iter().flatten();
    all_in(&live.labels, &desired.labels)
        && all_in(&live.annotations, &desired.annotations)
        && desired_owners.all(|owner| owners().any(|known| known == owner))
        && desired_finalizers.all(|finalizer| finalizers().any(|known| known == finalizer))
}

/// Checks whether a child has the desired content. Another component writes its status.
#[must_use]
pub fn has_content(live: &DynamicObject, desired: &DynamicObject) -> bool {
    let mut desired = desired.data.as_object().into_iter().flatten();
    desired.all(|(field, desired)| {
        field == "status" || contains(live.data.get(field).unwrap_or(&Value::Null), desired)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_child_with_more_fields_than_asked_for_is_unchanged() {
        for (live, desired) in [
            (json!({"a": 1, "b": 2}), json!({"a": 1})),
            (
                json!({"a": [{"x": 1, "default": true}]}),
                json!({"a": [{"x": 1}]}),
            ),
            (
                json!({"a": 1}),
                json!({"a": 1, "b": null, "c": [], "d": {}}),
            ),
            (json!({"a": null}), json!({"a": {"b": []}})),
            (json!({"a": {"b": 1}}), json!({"a": null})),
        ] {
            assert!(
                contains(&live, &desired),
                "{live} lacks something of {desired}"
            );
        }
    }

    #[test]
    fn a_child_that_lacks_or_changes_a_field_is_changed() {
        for (live, desired) in [
            (json!({"a": 1}), json!({"a": 2})),
            (json!({}), json!({"a": 0})),
            (json!({"a": [1, 2]}), json!({"a": [1]})),
            (json!({"a": [2, 1]}), json!({"a": [1, 2]})),
            (json!({"a": ["x"]}), json!({"a": []})),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 1, "c": "d"}})),
            (json!({"a": "1"}), json!({"a": 1})),
        ] {
            assert!(!contains(&live, &desired), "{live} has all of {desired}");
        }
    }

    #[test]
    fn a_merge_patch_says_only_what_differs() {
        for (before, after, patch) in [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1}), json!({"a": 2}), Some(json!({"a": 2}))),
            (
                json!({"a": 1, "b": 2}),
                json!({"a": 1}),
                Some(json!({"b": null})),
            ),
            (
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 1, "c": 3}}),
                Some(json!({"a": {"c": 3}})),
            ),
            (
                json!({"a": [1, 2]}),
                json!({"a": [1]}),
                Some(json!({"a": [1]})),
            ),
            (json!(null), json!({"a": 1}), Some(json!({"a": 1}))),
            (json!({}), json!({}), None),
        ] {
            assert_eq!(merge_patch(&before, &after), patch, "{before} -> {after}");
        }
    }
}
