//! `json.match_schema` and `json.verify_schema`: JSON Schema of drafts 4, 6 and 7, as OPA reads it. Without `$schema`, a
//! schema may use the keywords of all three. No schema is fetched: a reference to another document is a failure.
//! See <https://json-schema.org/specification-links#draft-7>.

mod compile;
mod containers;
mod documents;
mod fault;
mod formats;
mod keywords;
mod number;
mod object;
mod outcome;
mod rules;
mod validate;

use regorus::Value;

use self::compile::Compiler;
use self::validate::Validator;
use super::operand::{Answer, Failure, failed};
use super::plain::plain;

/// Implements `json.verify_schema`.
pub(super) fn verify(values: &[Value]) -> Answer {
    let schema = document(values, 0);
    let compiled = schema.and_then(|schema| Compiler::compile(&schema).map(drop));
    let (valid, message) = match compiled {
        Ok(()) => (true, Value::Null),
        Err(Failure::Failed(message)) => (false, Value::from(format!("jsonschema: {message}"))),
        Err(other) => return Err(other),
    };
    Ok(Value::from(vec![Value::from(valid), message]))
}

/// Implements `json.match_schema`.
pub(super) fn matches(values: &[Value]) -> Answer {
    let (document, schema) = (document(values, 0)?, document(values, 1)?);
    let schema = Compiler::compile(&schema)?;
    let faults = Validator::run(&schema, &document)?;
    let valid = Value::from(faults.is_empty());
    Ok(Value::from(vec![valid, fault::described(&faults)?]))
}

/// Returns an operand as a JSON document: the text of one, an object or an array.
fn document(values: &[Value], at: usize) -> Answer {
    match values.get(at) {
        Some(Value::String(text)) => {
            let read = Value::from_json_str(text);
            read.map_err(|_| Failure::Failed("invalid JSON string".to_owned()))
        }
        Some(value @ (Value::Object(_) | Value::Array(_))) => Ok(plain(value)),
        _ => failed("wrong type, expected string or object"),
    }
}
