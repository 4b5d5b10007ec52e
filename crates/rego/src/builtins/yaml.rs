//! `yaml.*`.

use std::fmt::Write as _;

use regorus::Value;
use serde::Deserialize as _;

use super::bounds::MAX_TEXT;
use super::operand::{Answer, Failure, bounded, failed, text};

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

/// Implements `yaml.marshal`.
pub(super) fn marshal(values: &[Value]) -> Answer {
    let Some(value) = values.first() else {
        return Err(Failure::Undefined);
    };
    let mut out = String::new();
    write(value, 0, false, &mut out);
    bounded(out)
}

/// Writes a value in lines; `after` is true behind a `-`, where its first line has begun.
fn write(value: &Value, indent: usize, after: bool, out: &mut String) {
    let items: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Set(items) => items.iter().collect(),
        Value::Object(fields) if !fields.is_empty() => {
            for (at, (key, value)) in fields.iter_sorted().enumerate() {
                let indent_of = if after && at == 0 { 0 } else { indent };
                let _ = write!(out, "{}{}:", " ".repeat(indent_of), scalar(key));
                nested(value, indent + 2, out);
            }
            return;
        }
        _ => {
            let _ = writeln!(out, "{}", scalar(value));
            return;
        }
    };
    if items.is_empty() {
        out.push_str("[]\n");
    }
    for (at, item) in items.into_iter().enumerate() {
        let indent_of = if after && at == 0 { 0 } else { indent };
        let _ = write!(out, "{}- ", " ".repeat(indent_of));
        write(item, indent + 2, true, out);
    }
}

fn nested(value: &Value, indent: usize, out: &mut String) {
    let is_empty = match value {
        Value::Array(items) => items.is_empty(),
        Value::Set(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => true,
    };
    out.push(if is_empty { ' ' } else { '\n' });
    write(value, indent, is_empty, out);
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Null | Value::Undefined => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        other => quoted(&super::rego_text::written(other)),
    }
}

/// Writes a text in quotes unless it is read as the same text without them.
fn quoted(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    if text.chars().any(char::is_control) {
        // A text of JSON is one of YAML.
        return serde_json::Value::from(text).to_string();
    }
    if !is_text(text) || (text.contains('\'') && !text.contains(['"', '\\'])) {
        return format!("\"{text}\"");
    }
    format!("'{}'", text.replace('\'', "''"))
}

fn is_plain(text: &str) -> bool {
    let begins =
        text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '.' | '(' | '+'));
    let inside = !text.contains(": ") && !text.contains(" #") && !text.ends_with([' ', ':']);
    let printable = !text.chars().any(char::is_control);
    begins && inside && printable && is_text(text)
}

/// Checks whether YAML reads a plain scalar as a text, also in the versions that Go reads.
fn is_text(text: &str) -> bool {
    let words = [
        "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~",
    ];
    let number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '+'));
    !number && !words.contains(&text.to_lowercase().as_str())
}
