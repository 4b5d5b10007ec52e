//! The generated objects: an honest object of a kind with a change somewhere in it.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Value, json};

use crate::random::Xorshift;

/// The values that may occur in large numbers: short as text, and large when decoded.
const WIDE: [&str; 7] = [
    "{}",
    "[[]]",
    r#"{"a":0}"#,
    "0",
    r#"{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":0}}}}}}}}}}"#,
    r#"{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}"#,
    r#"{"kind":"User","name":"a"}"#,
];
/// The maximum size of one object in any API server, which sends more of the characters that it
/// escapes.
const MAX_BYTES: usize = 1_572_864;
/// The number of letters in a text at the position of another type. The API server stores no such
/// object of a kind with typed fields. The decoder quotes the text unchanged, at 0.2 µs a letter.
const MISPLACED: usize = 80;
/// The additional length of an escaped letter.
const ESCAPED: usize = r"\u0000".len() - 1;

impl Xorshift {
    /// Returns a size that is mostly small, and large at times.
    fn size(&mut self, largest: usize) -> usize {
        let limit = match self.below(40) {
            0 => largest,
            1..=5 => largest / 50,
            _ => 8,
        };
        self.below(limit.max(2))
    }

    fn text(&mut self) -> String {
        const ODD: [&str; 12] = [
            "a",
            "<",
            "\u{0}",
            "\u{FFFD}",
            "\u{1F980}",
            "\u{202E}",
            "\"",
            "\\",
            "{",
            "]",
            "é",
            ",",
        ];
        let piece = self.one(&ODD).copied().unwrap_or("a");
        piece.repeat(self.size(MAX_BYTES / piece.len()))
    }

    fn value(&mut self) -> Value {
        match self.below(10) {
            0 => Value::Null,
            1 => json!(self.next()),
            2 => json!(-1.5e300),
            3 => json!([]),
            4 => {
                let count = self.size(50_000);
                (0..count).map(|_| json!({})).collect()
            }
            5 => {
                let count = self.size(20_000);
                let keys = (0..count).map(|number| (format!("key-{number}"), json!("")));
                Value::Object(keys.collect())
            }
            // The text form contains these only as placeholders: a value that nests so deeply cannot be
            // dropped either.
            6 => json!(format!("@{}@", self.size(200_000))),
            7 => {
                let shape = self.below(WIDE.len());
                json!(format!("@{}.{shape}@", self.size(500_000)))
            }
            _ => json!(self.text()),
        }
    }

    /// Changes a part of a value that was once `honest`, if the part existed then.
    pub(crate) fn change(&mut self, value: &mut Value, honest: Option<&Value>) {
        let stays = self.below(4) == 0;
        match value {
            Value::Object(fields) if !stays && !fields.is_empty() => {
                let place = self.below(fields.len());
                if let Some((name, inner)) = fields.iter_mut().nth(place) {
                    return self.change(inner, honest.and_then(|honest| honest.get(name)));
                }
            }
            Value::Array(items) if !stays && !items.is_empty() => {
                let place = self.below(items.len());
                if let Some(inner) = items.get_mut(place) {
                    return self.change(inner, honest.and_then(|honest| honest.get(place)));
                }
            }
            Value::Object(fields) if self.below(2) == 0 => {
                fields.insert(self.text(), self.value());
                return;
            }
            _ => {}
        }
        let mut other = self.value();
        if let Value::String(text) = &mut other
            && honest.is_some_and(|honest| !honest.is_string())
            && let Some((end, _)) = text.char_indices().nth(MISPLACED)
        {
            text.truncate(end);
        }
        *value = other;
    }
}

/// Returns the text of a value, with the placeholders for deep and wide parts expanded; none if
/// that is too large.
pub(crate) fn written(value: &Value) -> Result<Option<String>> {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("\"@") {
        out.push_str(before);
        let Some((grows, after)) = after.split_once("@\"") else {
            out.push_str("\"@");
            rest = after;
            continue;
        };
        rest = after;
        if let Ok(levels) = grows.parse::<usize>() {
            write!(out, "{}1{}", "{\"a\":[".repeat(levels), "]}".repeat(levels))?;
            continue;
        }
        let many = grows.split_once('.').and_then(|(count, shape)| {
            Some((
                count.parse::<usize>().ok()?,
                *WIDE.get(shape.parse::<usize>().ok()?)?,
            ))
        });
        match many {
            None => write!(out, "\"@{grows}@\"")?,
            Some((count, shape)) => {
                let count = count.min(MAX_BYTES / (shape.len() + 1));
                write!(out, "[{}]", vec![shape; count].join(","))?;
            }
        }
    }
    out.push_str(rest);
    let stored = out.len() - ESCAPED * out.matches(r"\u00").count();
    Ok((stored <= MAX_BYTES).then_some(out))
}

/// Returns an object as a user without hostile intent would store it.
pub(crate) fn honest(kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": if kind.contains("Access") || kind.contains("Transient") {
            "crds.wizardofoz.co/v1alpha1"
        } else {
            "v1"
        },
        "kind": kind,
        "metadata": {
            "name": "mine", "namespace": "shop", "uid": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
            "resourceVersion": "7", "generation": 1, "creationTimestamp": "2026-01-01T12:00:00Z",
            "labels": { "oz.wizardofoz.co/owner-uid": "7c9e6679-7425-40de-944b-e07fc1f90ae7" },
            "annotations": { "crds.wizardofoz.co/requested-by": "alice" },
            "ownerReferences": [], "finalizers": ["a/b"],
            "managedFields": [{ "manager": "m", "fieldsV1": { "f:a": {} } }],
        },
        "spec": spec,
    })
}
