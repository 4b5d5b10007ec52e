//! The latest events of a run for reports: without texts of prompts and answers, and never larger than the limit of a
//! body.

use std::collections::{BTreeMap, VecDeque};

use oz_api::harness::RunEvent;
use oz_api::harness::wire::MAX_BODY;

use crate::cut;

/// The text around the events in a report.
const FRAME: &str = r#"{"events":[]}"#;
/// The maximum number of fields of a reported event.
const MAX_FIELDS: usize = 16;
/// The maximum size of the name of a field in bytes.
const MAX_NAME: usize = 64;
/// The maximum size of a value or summary in bytes.
const MAX_VALUE: usize = 512;

/// The latest events of a run.
#[derive(Debug)]
pub(crate) struct Ring {
    events: VecDeque<String>,
    most: usize,
    bytes: usize,
}

impl Ring {
    /// Creates a ring of at most `most` events.
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            events: VecDeque::new(),
            most,
            bytes: FRAME.len(),
        }
    }

    /// Adds an event. The oldest events are removed until the rest fits.
    pub(crate) fn push(&mut self, event: &RunEvent) {
        let Ok(text) = serde_json::to_string(&reported(event)) else {
            return;
        };
        // Including the comma after it.
        self.bytes += text.len() + 1;
        self.events.push_back(text);
        while self.events.len() > self.most || self.bytes > MAX_BODY {
            let Some(gone) = self.events.pop_front() else {
                break;
            };
            self.bytes -= gone.len() + 1;
        }
    }

    /// Returns the body of a report.
    pub(crate) fn body(&self) -> String {
        let mut body = String::with_capacity(self.bytes);
        body += r#"{"events":["#;
        for (index, event) in self.events.iter().enumerate() {
            if index > 0 {
                body.push(',');
            }
            body += event;
        }
        body + "]}"
    }
}

/// Returns the form in which an event leaves the workspace.
fn reported(event: &RunEvent) -> RunEvent {
    // The fields with private texts, which are left out.
    let private: &[&str] = match event.type_.as_str() {
        "PromptSubmitted" => &["text"],
        "Message" if event.fields.get("role").is_none_or(|role| role != "system") => &["content"],
        "Result" | "Error" => &["content"],
        "ToolUse" | "FileEdit" => &["input"],
        _ => &[],
    };
    let kept = event.fields.iter();
    let kept = kept.filter(|(name, _)| !private.contains(&name.as_str()));
    let fields: BTreeMap<String, String> = kept
        .take(MAX_FIELDS)
        .map(|(name, value)| (cut::cut(name, MAX_NAME), cut::cut(value, MAX_VALUE)))
        .collect();
    RunEvent {
        schema_version: cut::cut(&event.schema_version, MAX_NAME),
        ts: event.ts,
        type_: cut::cut(&event.type_, MAX_NAME),
        summary: summary(event),
        fields,
    }
}

/// Returns the summary of an event. The summary of a prompt or an answer is often the beginning of its text, so it is
/// replaced by the length of the text.
fn summary(event: &RunEvent) -> String {
    let (text, what) = match event.type_.as_str() {
        "PromptSubmitted" => (event.fields.get("text"), "prompt"),
        "Message" => match event.fields.get("role").map(String::as_str) {
            Some("system") => return cut::cut(&event.summary, MAX_VALUE),
            Some("user") => (event.fields.get("content"), "prompt"),
            _ => (event.fields.get("content"), "answer"),
        },
        _ => return cut::cut(&event.summary, MAX_VALUE),
    };
    match text {
        Some(text) => format!("{what} of {} bytes", text.len()),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests;
