//! The operands of built-in functions, and their failures.

use std::sync::Arc;

use regorus::Value;

use super::bounds::Excess;

/// The reason why a call has no value.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The call is undefined, and an error in strict mode.
    Failed(String),
    /// The call is undefined, in strict mode too.
    Undefined,
    /// The interpreter's function panicked.
    Panic,
    /// The result would be too large: the evaluation ends.
    Excess(Excess),
}

impl From<Excess> for Failure {
    fn from(excess: Excess) -> Self {
        Self::Excess(excess)
    }
}

/// The result of a call.
pub(crate) type Answer = Result<Value, Failure>;

/// Returns a failure with that message.
pub(crate) fn failed<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Failed(message.into()))
}

fn wrong<T>(at: usize, want: &str, got: Option<&Value>) -> Result<T, Failure> {
    let got = got.map_or("nothing", kind);
    failed(format!("operand {} must be {want} but got {got}", at + 1))
}

/// Returns the name of a value's type, as `type_name` does.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Set(_) => "set",
        Value::Object(_) => "object",
        Value::Undefined => "undefined",
    }
}

/// Returns an operand that is a text.
pub(crate) fn text(values: &[Value], at: usize) -> Result<&str, Failure> {
    match values.get(at) {
        Some(Value::String(text)) => Ok(text),
        other => wrong(at, "string", other),
    }
}

/// Returns an operand that is a whole number of 64 bits.
pub(crate) fn integer(values: &[Value], at: usize) -> Result<i64, Failure> {
    match values.get(at) {
        Some(Value::Number(number)) => match number.as_i64() {
            Some(whole) => Ok(whole),
            None => wrong(at, "integer number", values.get(at)),
        },
        other => wrong(at, "number", other),
    }
}

/// Returns the items of an operand that is an array.
pub(crate) fn array(values: &[Value], at: usize) -> Result<Vec<Value>, Failure> {
    match values.get(at) {
        Some(Value::Array(items)) => Ok(items.iter().cloned().collect()),
        other => wrong(at, "array", other),
    }
}

/// Returns the items of an operand that is an array or a set.
pub(crate) fn items(values: &[Value], at: usize) -> Result<Vec<Value>, Failure> {
    match values.get(at) {
        Some(Value::Array(items)) => Ok(items.iter().cloned().collect()),
        Some(Value::Set(items)) => Ok(items.iter().cloned().collect()),
        other => wrong(at, "one of {array, set}", other),
    }
}

/// Returns the texts of an operand that is an array or a set of texts.
pub(crate) fn texts(values: &[Value], at: usize) -> Result<Vec<Arc<str>>, Failure> {
    let items = items(values, at)?.into_iter();
    let texts = items.map(|item| match item {
        Value::String(text) => Ok(text),
        other => wrong(at, "array of strings", Some(&other)),
    });
    texts.collect()
}

/// Returns the fields of an operand that is an object, in the order of their keys.
pub(crate) fn fields(values: &[Value], at: usize) -> Result<Vec<(Value, Value)>, Failure> {
    match values.get(at) {
        Some(Value::Object(fields)) => {
            let fields = fields.iter_sorted();
            Ok(fields
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect())
        }
        other => wrong(at, "object", other),
    }
}

/// Returns an array of texts.
pub(crate) fn text_array<'a>(texts: impl IntoIterator<Item = &'a str>) -> Value {
    Value::from(texts.into_iter().map(Value::from).collect::<Vec<_>>())
}

/// Checks the size of a text that a call returns.
pub(crate) fn bounded(text: String) -> Answer {
    if text.len() > super::bounds::MAX_TEXT {
        return Err(Excess::Text.into());
    }
    Ok(Value::from(text))
}
