//! The variables of the expression that gives the body of a notification: the record, in which every field exists and
//! no text has control characters.

use serde_json::{Map, Value, json};

use super::text::plain;
use super::{APPROVERS, Content, Route, link};
use crate::Record;

/// The fields of a record that an expression may read.
const FIELDS: [&str; 12] = [
    "id", "time", "action", "decision", "reason", "message", "user", "request", "template", "pod",
    "until", "details",
];

/// Returns the variables for a record.
///
/// # Errors
/// If the record cannot be written as JSON.
pub(super) fn variables(route: &Route, record: &Record) -> Result<Content, serde_json::Error> {
    let mut complete = json!({
        "user": {"user": "", "uid": "", "groups": []},
        "request": {"kind": "", "namespace": "", "name": "", "uid": ""},
        "template": "",
        "pod": {"name": "", "uid": "", "container": ""},
        "until": "",
        "details": {"reason": "", "ticket": "", APPROVERS: ""},
    });
    fill(&mut complete, harmless(serde_json::to_value(record)?));
    if let Value::Object(fields) = &mut complete {
        fields.retain(|name, _| FIELDS.contains(&name.as_str()));
    }
    let link = link(route, record);
    Ok(Content::Variables {
        record: complete,
        link: link.map_or_else(|| Value::String(String::new()), Value::String),
    })
}

/// Sets the fields that `given` has; of an object in `complete`, each of its fields.
fn fill(complete: &mut Value, given: Value) {
    match (complete, given) {
        (Value::Object(complete), Value::Object(given)) => {
            for (name, value) in given {
                fill(complete.entry(name).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (complete, given) => *complete = given,
    }
}

/// Returns a value with harmless texts.
fn harmless(value: Value) -> Value {
    match value {
        Value::String(text) => plain(&text).into(),
        Value::Array(items) => items.into_iter().map(harmless).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields: Map<String, Value> = fields
                .map(|(name, value)| (name, harmless(value)))
                .collect();
            fields.into()
        }
        other => other,
    }
}
