//! The conversion of lines of an agent's raw output into events. Each line has one of these forms, which are tried in
//! this order: an event, which is passed on unchanged; a line of the echo harness; a line of Claude's `stream-json`;
//! any other text.
//!
//! The conversion stores only the required parts of a line: a line may have up to a mebibyte, and its JSON as a tree
//! would take many times that.

mod bounded;
mod claude;
mod echo;

use std::collections::BTreeMap;

use jiff::Timestamp;
use oz_api::harness::RunEvent;
use serde::Deserialize;

use crate::cut;
use crate::tail::{Line, MAX_LINE};
use bounded::Strings;

/// The maximum size of a text in an event in bytes; raw.jsonl has the whole text.
const MAX_TEXT: usize = 256 * 1024;
/// The maximum size of a summary in bytes.
const MAX_SUMMARY: usize = 200;

/// An event, and its written form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// One line of JSON, without the line feed.
    pub(crate) line: String,
    /// The event. If it is passed on, long values are truncated and fields that are not strings are left out.
    pub(crate) event: RunEvent,
    /// The result that the agent reported, if this is a result.
    pub(crate) outcome: Option<Outcome>,
}

/// The result that an agent reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// True if the agent reported a failure.
    pub(crate) has_failed: bool,
    /// A short description.
    pub(crate) summary: Option<String>,
    /// The number of changed files.
    pub(crate) files_changed: Option<i32>,
}

/// An event that this module creates.
#[derive(Debug, Default)]
struct Draft {
    type_: &'static str,
    summary: String,
    fields: BTreeMap<String, String>,
    outcome: Option<Outcome>,
}

impl Draft {
    fn new(type_: &'static str, summary: &str) -> Self {
        Self {
            type_,
            summary: cut::line(summary, MAX_SUMMARY),
            ..Self::default()
        }
    }

    /// Adds a field, unless it is empty.
    fn field(mut self, name: &str, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        let mut kept = cut::prefix(value, MAX_TEXT).to_owned();
        if kept.len() < value.len() {
            kept += &format!("… ({} bytes more)", value.len() - kept.len());
        }
        self.fields.insert(name.to_owned(), kept);
        self
    }

    /// Adds a field, unless it is absent or empty.
    fn optional(self, name: &str, value: Option<impl AsRef<str>>) -> Self {
        match value {
            Some(value) => self.field(name, value.as_ref()),
            None => self,
        }
    }

    fn message(role: &str, text: &str) -> Self {
        Self::new("Message", text)
            .field("role", role)
            .field("content", text)
    }

    fn event(self, now: Timestamp) -> Option<Event> {
        let event = RunEvent {
            schema_version: "1".to_owned(),
            ts: now,
            type_: self.type_.to_owned(),
            summary: self.summary,
            fields: self.fields,
        };
        Some(Event {
            line: serde_json::to_string(&event).ok()?,
            event,
            outcome: self.outcome,
        })
    }
}

/// Returns the prompt of the run as the first event.
pub(crate) fn prompt(text: &str, now: Timestamp) -> Option<Event> {
    prompt_draft(text).event(now)
}

fn prompt_draft(text: &str) -> Draft {
    Draft::new(
        "PromptSubmitted",
        &format!("prompt of {} bytes", text.len()),
    )
    .field("text", text)
}

/// Returns the events of a line.
pub(crate) fn convert(line: &Line<'_>, now: Timestamp) -> Vec<Event> {
    let text = String::from_utf8_lossy(line.bytes);
    let text = text.trim();
    if text.is_empty() {
        return Vec::new();
    }
    if line.was_cut {
        let note = format!("the line is longer than {MAX_LINE} bytes, the rest is left out");
        let draft = Draft::message("assistant", text).field("note", &note);
        return draft.event(now).into_iter().collect();
    }
    if text.starts_with('{') {
        if let Some(event) = passed_on(text) {
            return vec![event];
        }
        let drafts = echo::convert(text).or_else(|| claude::convert(text));
        if let Some(drafts) = drafts {
            let events = drafts.into_iter();
            return events.filter_map(|draft| draft.event(now)).collect();
        }
    }
    let event = Draft::message("assistant", text).event(now);
    event.into_iter().collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    schema_version: String,
    ts: Timestamp,
    #[serde(rename = "type")]
    type_: String,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    fields: Strings,
}

/// Returns the event in a line that is an event.
pub(crate) fn passed_on(text: &str) -> Option<Event> {
    let written: Written = serde_json::from_str(text).ok()?;
    let fields = written.fields.0;
    let outcome = (written.type_ == "Result").then(|| Outcome {
        has_failed: false,
        summary: Some(written.summary.clone()).filter(|summary| !summary.is_empty()),
        files_changed: fields
            .get("filesChanged")
            .and_then(|count| count.parse().ok()),
    });
    Some(Event {
        line: text.to_owned(),
        event: RunEvent {
            schema_version: written.schema_version,
            ts: written.ts,
            type_: written.type_,
            summary: cut::cut(&written.summary, MAX_TEXT),
            fields,
        },
        outcome,
    })
}

#[cfg(test)]
mod tests;
