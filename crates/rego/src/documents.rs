//! The documents that a policy reads: its input, and those below `data`.

use regorus::Value;
use serde::Deserialize as _;

use crate::error::{CompileError, CompileErrors, EvaluateError, Reason};

/// The maximum depth of an input: more than the API server stores.
const MAX_INPUT_DEPTH: usize = 200;

/// Reads an input, which is nested at most [`MAX_INPUT_DEPTH`] levels.
pub(crate) fn read(input: &serde_json::Value) -> Result<Value, EvaluateError> {
    if depth_exceeds(input, MAX_INPUT_DEPTH) {
        return Err(EvaluateError::Input(MAX_INPUT_DEPTH));
    }
    Value::deserialize(input).map_err(|error| EvaluateError::Failed {
        file: "input".to_owned(),
        line: 0,
        message: error.to_string(),
    })
}

/// Reads the documents below `data`.
pub(crate) fn data(data: &serde_json::Value) -> Result<Option<Value>, CompileErrors> {
    let whole = |message: String| CompileErrors::one(CompileError::whole(Reason::Size, message));
    if data.is_null() {
        return Ok(None);
    }
    read(data)
        .map(Some)
        .map_err(|error| whole(format!("the documents below `data`: {error}")))
}

fn depth_exceeds(value: &serde_json::Value, levels: usize) -> bool {
    use serde_json::Value as Json;
    let Some(below) = levels.checked_sub(1) else {
        return true;
    };
    match value {
        Json::Array(items) => items.iter().any(|item| depth_exceeds(item, below)),
        Json::Object(fields) => fields.values().any(|field| depth_exceeds(field, below)),
        _ => false,
    }
}
