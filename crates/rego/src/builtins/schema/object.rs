//! The fields of objects.

use regorus::Value;

/// Returns the value of a key of an object.
pub(super) fn get<'v>(object: &'v Value, key: &str) -> Option<&'v Value> {
    match object {
        Value::Object(_) => Some(&object[key]).filter(|value| **value != Value::Undefined),
        _ => None,
    }
}

/// Returns the fields of an object in the order of their keys.
pub(super) fn fields(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = object.as_object().into_iter();
    let fields = fields.flat_map(|fields| fields.iter_sorted());
    fields.filter_map(|(key, value)| match key {
        Value::String(key) => Some((&**key, value)),
        _ => None,
    })
}
