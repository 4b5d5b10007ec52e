//! The comparison of a value with the schema of its CRD, as in the API server.
//! See <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation>.

use regex::Regex;
use serde_json::Value;

use super::found::Found;

/// Compares a value with its schema. A field that the API server would drop silently is an error
/// here, since its author expected an effect.
pub(super) fn structure(schema: &Value, value: &Value, path: &str, found: &mut Found) {
    let mut add = |message: String| found.push(("schema", path.to_owned(), message));
    if value.is_null() {
        if schema["nullable"] != true {
            add("must not be null".to_owned());
        }
        return;
    }
    if let Some(wanted) = schema["type"].as_str()
        && !is_of(wanted, value)
    {
        add(format!("must be of type {wanted}"));
        return;
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        let choices: Vec<String> = choices.iter().map(plain).collect();
        add(format!("must be one of: {}", choices.join(", ")));
        return;
    }
    if let (Some(pattern), Value::String(text)) = (schema["pattern"].as_str(), value)
        && Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text))
    {
        add(format!("must match {pattern}"));
    }
    let (count, least, most, of) = match value {
        Value::String(text) => (text.chars().count(), "minLength", "maxLength", "characters"),
        Value::Array(items) => (items.len(), "minItems", "maxItems", "items"),
        _ => (0, "", "", ""),
    };
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    if let Some(least) = schema[least].as_u64().filter(|&least| count < least) {
        add(format!("must have {least} {of} or more"));
    }
    if let Some(most) = schema[most].as_u64().filter(|&most| count > most) {
        add(format!("must have {most} {of} at most"));
    }
    match value {
        Value::Object(fields) => object_fields(schema, fields, path, found),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                structure(&schema["items"], item, &format!("{path}[{at}]"), found);
            }
        }
        _ => {}
    }
}

fn object_fields(
    schema: &Value,
    fields: &serde_json::Map<String, Value>,
    path: &str,
    found: &mut Found,
) {
    let required = schema["required"].as_array().into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        // A default replaces a missing field.
        if !fields.contains_key(name) && schema["properties"][name].get("default").is_none() {
            found.push(("schema", format!("{path}.{name}"), "is required".to_owned()));
        }
    }
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    for (name, value) in fields {
        let path = format!("{path}.{name}");
        if let Some(known) = schema["properties"].get(name) {
            structure(known, value, &path, found);
        } else if let Some(any) = schema.get("additionalProperties") {
            structure(any, value, &path, found);
        } else if !open && schema["properties"].is_object() {
            let known = schema["properties"].as_object().into_iter().flatten();
            let known: Vec<&str> = known.map(|(name, _)| name.as_str()).collect();
            found.push(("schema", path, unknown(name, &known)));
        }
    }
}

/// Returns the message about a field that is not in the schema.
pub(super) fn unknown(name: &str, known: &[&str]) -> String {
    match closest(name, known) {
        Some(meant) => format!("is unknown; did you mean {meant}?"),
        None => "is unknown".to_owned(),
    }
}

fn is_of(wanted: &str, value: &Value) -> bool {
    match wanted {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        _ => true,
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a field that differs only in case, or by one letter.
fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = name.to_lowercase();
    known
        .iter()
        .find(|other| other.to_lowercase() == lower)
        .or_else(|| {
            known
                .iter()
                .find(|other| differ_by_one(&lower, &other.to_lowercase()))
        })
        .copied()
}

fn differ_by_one(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() <= other.len() {
        (one, other)
    } else {
        (other, one)
    };
    if long.len() - short.len() > 1 {
        return false;
    }
    let same = short
        .bytes()
        .zip(long.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let rest = |text: &str, from: usize| text.as_bytes().get(from..).map(<[u8]>::to_vec);
    if short.len() == long.len() {
        rest(short, same + 1) == rest(long, same + 1)
    } else {
        rest(short, same) == rest(long, same + 1)
    }
}
