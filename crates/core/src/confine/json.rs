//! Reads and changes of a pod as JSON and not as a type, so that fields of a newer Kubernetes than ours are kept.

use std::collections::BTreeMap;

use serde_json::Value;

/// Returns the items of a list; a value of another type has none.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns the items of a list in this field, if it has one. Indexing would create the field.
pub fn items_mut<'a>(parent: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = parent.get_mut(field).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

/// Returns the fields of an object; a value of another type has none.
pub fn fields(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten()
}

/// Returns the fields of an object that are texts, such as labels.
#[must_use]
pub fn texts(object: &Value) -> BTreeMap<String, String> {
    let texts =
        fields(object).filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

/// Appends to a list; a value of another type stays.
pub fn append(list: &mut Value, more: impl IntoIterator<Item = Value>) {
    if let Value::Array(list) = list {
        list.extend(more);
    }
}

/// Removes a field of an object.
pub fn remove(parent: &mut Value, field: &str) {
    if let Some(fields) = parent.as_object_mut() {
        fields.remove(field);
    }
}

/// Removes a field if Kubernetes does not distinguish its value from an absent one.
pub fn prune(parent: &mut Value, field: &str) {
    if parent.get(field).is_none_or(is_empty) {
        remove(parent, field);
    }
}

/// Checks whether Kubernetes does not distinguish a value from an absent one.
#[must_use]
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Checks whether an init container runs for as long as the pod.
/// See <https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/>.
#[must_use]
pub fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_of_absent_and_mistyped_fields_find_nothing_and_create_nothing() {
        let original =
            json!({"list": ["a"], "map": {"text": "b", "number": 1}, "text": "c", "null": null});
        let mut pod = original.clone();
        for (field, list, texts_of) in [
            ("list", 1, 0),
            ("map", 0, 1),
            ("text", 0, 0),
            ("null", 0, 0),
            ("none", 0, 0),
        ] {
            assert_eq!(items_mut(&mut pod, field).count(), list, "{field}");
            let value = pod.get(field).unwrap_or(&Value::Null);
            assert_eq!(items(value).count(), list, "{field}");
            assert_eq!(texts(value).len(), texts_of, "{field}");
        }
        append(&mut pod["text"], [json!("d")]);
        assert_eq!(pod, original);
        append(&mut pod["list"], [json!("d")]);
        assert_eq!(pod["list"], json!(["a", "d"]));
    }

    #[test]
    fn only_values_that_equal_absent_ones_are_pruned() {
        let mut pod = json!({
            "null": null, "list": [], "map": {}, "text": "", "false": false, "zero": 0, "full": [null],
        });
        for field in [
            "null", "list", "map", "text", "false", "zero", "full", "none",
        ] {
            prune(&mut pod, field);
        }
        assert_eq!(
            pod,
            json!({"text": "", "false": false, "zero": 0, "full": [null]})
        );
    }
}
