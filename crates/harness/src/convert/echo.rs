//! The lines of the echo harness.

use serde::Deserialize;

use super::{Draft, Outcome};

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Message,
    Tool,
    Result,
    Error,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    kind: Kind,
    #[serde(default)]
    text: String,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    summary: String,
    files_changed: Option<i32>,
    #[serde(default)]
    message: String,
}

/// Returns the events of a line; `None` if the line has another form.
pub(super) fn convert(text: &str) -> Option<Vec<Draft>> {
    let written: Written = serde_json::from_str(text).ok()?;
    let draft = match written.kind {
        Kind::Message => Draft::message("assistant", &written.text),
        Kind::Tool => {
            let said = match (written.summary.as_str(), written.path.as_str()) {
                ("", "") => written.tool.clone(),
                ("", path) => format!("{} {path}", written.tool),
                (summary, _) => summary.to_owned(),
            };
            Draft::new("ToolUse", &said)
                .field("tool", &written.tool)
                .field("path", &written.path)
        }
        Kind::Result => {
            let count = written.files_changed;
            let mut draft = Draft::new("Result", &written.summary)
                .optional("filesChanged", count.map(|count| count.to_string()));
            draft.outcome = Some(Outcome {
                has_failed: false,
                summary: Some(written.summary).filter(|summary| !summary.is_empty()),
                files_changed: count,
            });
            draft
        }
        Kind::Error => Draft::new("Error", &written.message).field("message", &written.message),
    };
    Some(vec![draft])
}
