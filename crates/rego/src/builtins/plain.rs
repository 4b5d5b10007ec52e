//! Values as JSON has them, and their texts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use regorus::Value;

/// Returns a value as JSON has it: sets are arrays, and keys are texts.
pub(super) fn plain(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::from(items.iter().map(plain).collect::<Vec<_>>()),
        Value::Set(items) => Value::from(items.iter().map(plain).collect::<Vec<_>>()),
        Value::Object(all) => {
            let all = all.iter_sorted().map(|(key, value)| {
                let key = match key {
                    Value::String(_) => key.clone(),
                    other => Value::from(json(&plain(other))),
                };
                (key, plain(value))
            });
            Value::from(all.collect::<BTreeMap<_, _>>())
        }
        other => other.clone(),
    }
}

/// Writes a value as Go's package `encoding/json` does: without blanks, with escaped characters of HTML.
pub(super) fn json(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (at, (key, value)) in fields.iter_sorted().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write(key, out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
        Value::Undefined => out.push_str("null"),
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    for c in serde_json::Value::from(text).to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
}
