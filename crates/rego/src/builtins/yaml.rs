//! `yaml.is_valid` and `yaml.unmarshal`.

use regorus::Value;
use serde::Deserialize as _;

use super::bounds::MAX_TEXT;
use super::operand::{Answer, Failure, failed, text};

/// Implements `yaml.is_valid`: all documents of a text can be read.
pub(super) fn is_valid(values: &[Value]) -> Answer {
    let valid = text(values, 0).is_ok_and(|text| documents(text).is_ok());
    Ok(Value::from(valid))
}

/// Implements `yaml.unmarshal`: the first document of a text. The parser bounds aliases and depth.
pub(super) fn unmarshal(values: &[Value]) -> Answer {
    let first = documents(text(values, 0)?)?
        .into_iter()
        .next()
        .unwrap_or_default();
    match Value::deserialize(first) {
        Ok(value) => Ok(value),
        Err(error) => failed(format!("yaml: {error}")),
    }
}

/// Reads a text of one document.
pub(crate) fn document(text: &str) -> Result<serde_json::Value, String> {
    let mut found = documents(text).map_err(|failure| match failure {
        Failure::Failed(message) => message,
        Failure::Undefined | Failure::Panic | Failure::Excess(_) => "it is not YAML".to_owned(),
    })?;
    match found.len() {
        0 | 1 => Ok(found.pop().unwrap_or_default()),
        count => Err(format!("it has {count} documents")),
    }
}

/// Reads the documents of a text. A line that begins with a tab is not YAML.
fn documents(text: &str) -> Result<Vec<serde_json::Value>, Failure> {
    if text.len() > MAX_TEXT {
        return failed("yaml: the text is too large");
    }
    let is_tab = |line: &str| line.starts_with('\t') && !line.trim().is_empty();
    if text.lines().any(is_tab) {
        return failed("yaml: found character that cannot start any token");
    }
    serde_saphyr::from_multiple(text).map_err(|error| Failure::Failed(format!("yaml: {error}")))
}
