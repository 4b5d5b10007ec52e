//! The last events of a run, as they are reported: without texts of prompts and answers, and never more than a
//! body may have.

use std::collections::{BTreeMap, VecDeque};

use oz_api::harness::RunEvent;
use oz_api::harness::wire::MAX_BODY;

use crate::cut;

/// What stands around the events in a report.
const FRAME: &str = r#"{"events":[]}"#;
/// The most fields that a reported event has.
const MAX_FIELDS: usize = 16;
/// The most bytes of the name of a field.
const MAX_NAME: usize = 64;
/// The most bytes of a value or summary.
const MAX_VALUE: usize = 512;

/// The last events of a run.
#[derive(Debug)]
pub(crate) struct Ring {
    events: VecDeque<String>,
    most: usize,
    bytes: usize,
}

impl Ring {
    /// A ring of so many events at most.
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            events: VecDeque::new(),
            most,
            bytes: FRAME.len(),
        }
    }

    /// Adds an event. The oldest go until the rest fits.
    pub(crate) fn push(&mut self, event: &RunEvent) {
        let Ok(text) = serde_json::to_string(&reported(event)) else {
            return;
        };
        // With the comma after it.
        self.bytes += text.len() + 1;
        self.events.push_back(text);
        while self.events.len() > self.most || self.bytes > MAX_BODY {
            let Some(gone) = self.events.pop_front() else {
                break;
            };
            self.bytes -= gone.len() + 1;
        }
    }

    /// The body of a report.
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

/// An event as it leaves the workspace.
fn reported(event: &RunEvent) -> RunEvent {
    // The text, what it is called in a summary, and what else is left out.
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

/// The summary of a prompt or an answer is often its beginning, so these get one that says nothing of it.
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
