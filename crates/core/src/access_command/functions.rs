//! The functions that a command can call. Most are gotmpl's own; those here differ from them in the handling
//! of structures, of a missing key, and of results that are too long.

use std::sync::Arc;

use gotmpl::{Result, Template, TemplateError, Value};

use super::MAX_MESSAGE;
use super::metadata::type_of_structure;

/// The functions that a command can use.
pub(super) const SUPPORTED: [&str; 14] = [
    "and", "eq", "ge", "gt", "index", "le", "len", "lt", "ne", "not", "or", "print", "printf",
    "println",
];
/// The functions among them that create text.
pub(super) const PRINTING: [&str; 3] = ["print", "printf", "println"];

/// Names of functions that only [`super::syntax`] adds to a tree.
pub(super) const FIELD: &str = "\0field";
pub(super) const ITERABLE: &str = "\0iterable";
pub(super) const BOUNDED: &str = "\0bounded";

pub(super) fn register(template: Template) -> Template {
    template
        .func("index", index)
        .func("len", len)
        .func(FIELD, field)
        .func(ITERABLE, iterable)
        .func(BOUNDED, bounded)
}

/// Reads `.A.B`: a field of a structure must exist, a key of a map need not.
fn field(arguments: &[Value]) -> Result<Value> {
    let Some((receiver, names)) = arguments.split_first() else {
        return Err(failure("a field of nothing"));
    };
    let mut value = receiver.clone();
    for name in names.iter().filter_map(Value::as_str) {
        value = match (&value, value.field(name)) {
            (_, Some(found)) => found.clone(),
            (Value::Map(_), None) if type_of_structure(&value).is_none() => Value::Nil,
            (Value::Nil, None) => Value::Nil,
            (_, None) => {
                let type_ = type_of_structure(&value).unwrap_or(value.type_name());
                return Err(failure(format!(
                    "can't evaluate field {name} in type {type_}"
                )));
            }
        };
    }
    Ok(value)
}

/// Implements `index` as gotmpl's, except that a key that a map of strings does not have gives the empty
/// string.
fn index(arguments: &[Value]) -> Result<Value> {
    let Some((item, keys)) = arguments.split_first() else {
        return Err(failure(
            "wrong number of args for index: want at least 1 got 0",
        ));
    };
    let mut value = item.clone();
    for key in keys {
        if let Some(type_) = type_of_structure(&value) {
            return Err(failure(format!("can't index item of type {type_}")));
        }
        value = match (value.index(key)?, &value) {
            (Value::Nil, Value::Map(_)) => Value::String(Arc::from("")),
            (found, _) => found,
        };
    }
    Ok(value)
}

fn len(arguments: &[Value]) -> Result<Value> {
    let [item] = arguments else {
        return Err(failure(format!(
            "wrong number of args for len: want 1 got {}",
            arguments.len()
        )));
    };
    match item.len().and_then(|length| i64::try_from(length).ok()) {
        Some(length) if type_of_structure(item).is_none() => Ok(Value::Int(length)),
        _ => Err(failure(format!(
            "len of type {}",
            type_of_structure(item).unwrap_or(item.type_name())
        ))),
    }
}

/// Returns a value that `range` can iterate over.
fn iterable(arguments: &[Value]) -> Result<Value> {
    match arguments {
        [item] => match type_of_structure(item) {
            Some(type_) => Err(failure(format!("range can't iterate over type {type_}"))),
            None => Ok(item.clone()),
        },
        _ => Err(failure("range over nothing")),
    }
}

/// Returns a text that is short enough for a message, so that a command cannot double a text repeatedly.
fn bounded(arguments: &[Value]) -> Result<Value> {
    match arguments {
        [Value::String(text)] if text.len() > MAX_MESSAGE => Err(TemplateError::Write),
        [value] => Ok(value.clone()),
        _ => Err(failure("nothing to print")),
    }
}

fn failure(text: impl Into<String>) -> TemplateError {
    TemplateError::Exec(text.into())
}
