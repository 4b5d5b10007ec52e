//! Values as texts of Rego, as OPA writes them.

use std::fmt::Write as _;

use regorus::Value;

/// Writes a value as a term of Rego.
pub(super) fn written(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => out.push_str(&quoted(text)),
        Value::Array(items) => list(items.iter(), ("[", "]"), out),
        Value::Set(items) if items.is_empty() => out.push_str("set()"),
        Value::Set(items) => list(items.iter(), ("{", "}"), out),
        Value::Object(fields) => {
            out.push('{');
            for (at, (key, value)) in fields.iter_sorted().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write(key, out);
                out.push_str(": ");
                write(value, out);
            }
            out.push('}');
        }
        Value::Undefined => out.push_str("<undefined>"),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

fn list<'v>(items: impl Iterator<Item = &'v Value>, (open, close): (&str, &str), out: &mut String) {
    out.push_str(open);
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        write(item, out);
    }
    out.push_str(close);
}

/// Writes a text with quotes, as Go does.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
