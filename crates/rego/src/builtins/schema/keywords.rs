//! The keywords of a schema, with the errors that OPA has for them.

use regorus::Value;

use super::super::operand::{Failure, failed};
use super::number;
use super::object::get;

/// The types of JSON, in the order in which an error lists them.
pub(super) const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "number", "null", "object", "string",
];

/// A version of JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Draft {
    Four,
    Six,
    Seven,
    /// The keywords of all versions, for schemas that do not name a version.
    Any,
}

impl Draft {
    /// Returns the version that a schema names.
    pub(super) fn from_schema(schema: &Value) -> Result<Self, Failure> {
        match schema {
            Value::Bool(_) => Ok(Self::Any),
            Value::Object(_) => match get(schema, "$schema") {
                Some(Value::String(address)) => Ok(match address.trim_end_matches('#') {
                    "http://json-schema.org/draft-04/schema" => Self::Four,
                    "http://json-schema.org/draft-06/schema" => Self::Six,
                    "http://json-schema.org/draft-07/schema" => Self::Seven,
                    _ => Self::Any,
                }),
                Some(_) => failed("$schema must be of type string"),
                None => Ok(Self::Any),
            },
            _ => failed("schema is invalid"),
        }
    }
}

/// Returns the failure that a keyword has a value of another type.
pub(super) fn wrong<T>(expected: &str, given: &str) -> Result<T, Failure> {
    failed(format!(
        "Invalid type. Expected: {expected}, given: {given}"
    ))
}

/// Returns a keyword that is a text.
pub(super) fn text<'v>(schema: &'v Value, key: &str) -> Result<Option<&'v str>, Failure> {
    match get(schema, key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => wrong("string", key),
    }
}

/// Returns a keyword that is an array.
pub(super) fn list<'v>(schema: &'v Value, key: &str) -> Result<Option<Vec<&'v Value>>, Failure> {
    match get(schema, key) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.iter().collect())),
        Some(_) => failed(format!("{key} must be of an array")),
    }
}

/// Returns a keyword that is an array of different texts.
pub(super) fn different_texts(schema: &Value, key: &str) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    for item in list(schema, key)?.into_iter().flatten() {
        let Value::String(text) = item else {
            return wrong("string", key);
        };
        texts.push(text.as_ref().to_owned());
    }
    let mut sorted: Vec<&String> = texts.iter().collect();
    sorted.sort();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return failed(format!("{key} items must be unique"));
    }
    Ok(texts)
}

/// Returns a keyword that is a count.
pub(super) fn count(schema: &Value, key: &str) -> Result<Option<i64>, Failure> {
    let Some(value) = get(schema, key) else {
        return Ok(None);
    };
    match value.as_i64() {
        Ok(count) if count >= 0 => Ok(Some(count)),
        Ok(_) => failed(format!("{key} must be greater than or equal to 0")),
        Err(_) => failed(format!("{key} must be of an integer")),
    }
}

/// Returns a keyword that is a number.
pub(super) fn limit(schema: &Value, key: &str) -> Result<Option<Value>, Failure> {
    match get(schema, key) {
        None => Ok(None),
        Some(value @ Value::Number(_)) => Ok(Some(value.clone())),
        Some(_) => failed(format!("{key} must be of a Number")),
    }
}

/// Returns `multipleOf`.
pub(super) fn multiple_of(schema: &Value) -> Result<Option<Value>, Failure> {
    match get(schema, "multipleOf") {
        None => Ok(None),
        Some(value @ Value::Number(_)) if number::is_positive(value) => Ok(Some(value.clone())),
        Some(Value::Number(_)) => failed("multipleOf must be strictly greater than 0"),
        Some(_) => wrong("Number", "multipleOf"),
    }
}

/// Returns `exclusiveMinimum` or `exclusiveMaximum`, which replaces `inclusive` if it is `true`.
pub(super) fn exclusive(
    schema: &Value,
    (key, inclusive_key): (&str, &str),
    inclusive: &mut Option<Value>,
    draft: Draft,
) -> Result<Option<Value>, Failure> {
    let expected = match draft {
        Draft::Four => "boolean",
        Draft::Any => "boolean/number",
        Draft::Six | Draft::Seven => "number",
    };
    match get(schema, key) {
        None => Ok(None),
        Some(Value::Bool(is_exclusive)) if matches!(draft, Draft::Four | Draft::Any) => {
            if inclusive.is_none() {
                return failed(format!("{key} cannot be used without {inclusive_key}"));
            }
            Ok(if *is_exclusive {
                inclusive.take()
            } else {
                None
            })
        }
        Some(value @ Value::Number(_)) if draft != Draft::Four => Ok(Some(value.clone())),
        Some(_) => wrong(expected, key),
    }
}

/// Returns `type`.
pub(super) fn types(schema: &Value) -> Result<Vec<&'static str>, Failure> {
    let expected = "string/Array Of Strings";
    let named = match get(schema, "type") {
        None => return Ok(Vec::new()),
        Some(one @ Value::String(_)) => vec![one],
        Some(Value::Array(all)) => all.iter().collect(),
        Some(_) => return wrong("type", expected),
    };
    let mut types = Vec::new();
    for name in named {
        let Value::String(name) = name else {
            return wrong("type", expected);
        };
        let Some(known) = TYPES.into_iter().find(|known| *known == &**name) else {
            let all = TYPES.join(" ");
            return failed(format!(
                "has a primitive type that is NOT VALID -- given: /{name}/ Expected valid values are:[{all}]"
            ));
        };
        if types.contains(&known) {
            return failed(format!("{known} type is duplicated"));
        }
        types.push(known);
    }
    Ok(types)
}
