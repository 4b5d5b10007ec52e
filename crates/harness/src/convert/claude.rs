//! The lines of Claude's `stream-json`. Answers of tools are events only if the tool failed, and thoughts of the model
//! are no events: both are in raw.jsonl.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::bounded::First;
use super::{Draft, Outcome, prompt_draft};
use crate::cut;

/// The tools that change a file.
const EDITORS: [&str; 4] = ["Edit", "MultiEdit", "NotebookEdit", "Write"];
/// The maximum size of a tool's input in an event in bytes.
const MAX_INPUT: usize = 16 * 1024;

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(rename = "type")]
    type_: String,
    #[serde(default)]
    subtype: String,
    #[serde(default)]
    session_id: String,
    #[serde(default)]
    model: String,
    #[serde(borrow)]
    message: Option<Said<'a>>,
    #[serde(default)]
    is_error: bool,
    num_turns: Option<u64>,
    duration_ms: Option<u64>,
    total_cost_usd: Option<f64>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Block<'a> {
    #[serde(rename = "type", default)]
    type_: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(default)]
    tool_use_id: String,
    #[serde(default)]
    is_error: bool,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// The part of a tool's input that a summary contains.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Input {
    file_path: String,
    notebook_path: String,
    command: String,
    pattern: String,
    description: String,
}

/// Returns the events of a line; `None` if the line has another form.
pub(super) fn convert(text: &str) -> Option<Vec<Draft>> {
    let written: Written<'_> = serde_json::from_str(text).ok()?;
    let content = written.message.as_ref().and_then(|said| said.content);
    match written.type_.as_str() {
        "system" => Some(system(&written)),
        "assistant" => Some(blocks(content?, "assistant")),
        "user" => Some(blocks(content?, "user")),
        "result" if !written.subtype.is_empty() => Some(vec![result(&written)]),
        // Pieces of a message that follows as a whole, such as `stream_event`.
        _ if !written.session_id.is_empty() => Some(Vec::new()),
        _ => None,
    }
}

fn system(written: &Written<'_>) -> Vec<Draft> {
    let said = match written.subtype.as_str() {
        "init" => format!("session started, model {}", written.model),
        other => other.to_owned(),
    };
    let draft = Draft::message("system", &said)
        .field("model", &written.model)
        .field("session", &written.session_id);
    vec![draft]
}

fn blocks(content: &RawValue, role: &str) -> Vec<Draft> {
    if let Ok(text) = serde_json::from_str::<String>(content.get()) {
        return vec![said(role, &text)];
    }
    let blocks: Option<First<Block<'_>>> = serde_json::from_str(content.get()).ok();
    let blocks = blocks.iter().flat_map(|first| &first.0);
    blocks.filter_map(|block| of_block(block, role)).collect()
}

fn said(role: &str, text: &str) -> Draft {
    match role {
        // A text of the role `user` is a prompt.
        "user" => prompt_draft(text),
        role => Draft::message(role, text),
    }
}

fn of_block(block: &Block<'_>, role: &str) -> Option<Draft> {
    match block.type_.as_str() {
        "text" if !block.text.is_empty() => Some(said(role, &block.text)),
        "tool_use" => Some(tool(block)),
        "tool_result" if block.is_error => {
            let content = block.content.map(|raw| cut::cut(raw.get(), MAX_INPUT));
            let draft = Draft::new("Error", "a tool failed")
                .field("id", &block.tool_use_id)
                .optional("content", content);
            Some(draft)
        }
        _ => None,
    }
}

fn tool(block: &Block<'_>) -> Draft {
    let raw = block.input.map(RawValue::get);
    let input: Option<Input> = raw.and_then(|raw| serde_json::from_str(raw).ok());
    let input = input.unwrap_or_default();
    let path = [&input.file_path, &input.notebook_path];
    let path = path.into_iter().find(|path| !path.is_empty());
    let others = [&input.description, &input.command, &input.pattern];
    let mut about = path.into_iter().chain(others);
    let mut summary = format!("{} ", block.name);
    summary.extend(about.find(|text| !text.is_empty()).map(String::as_str));
    let is_edit = EDITORS.contains(&block.name.as_str()) && path.is_some();
    let type_ = if is_edit { "FileEdit" } else { "ToolUse" };
    Draft::new(type_, &summary)
        .field("tool", &block.name)
        .field("id", &block.id)
        .optional("path", path)
        .optional("input", raw.map(|raw| cut::cut(raw, MAX_INPUT)))
}

/// Returns the event of the end of a session. The answer stays in the workspace, as all answers do; an image that needs
/// it in the run's status writes result.json.
fn result(written: &Written<'_>) -> Draft {
    let has_failed = written.is_error || written.subtype != "success";
    let mut said = written.subtype.replace('_', " ");
    if written.is_error && written.subtype == "success" {
        "error".clone_into(&mut said);
    }
    if let Some(turns) = written.num_turns {
        said += &format!(", {turns} turns");
    }
    let answer = written.result.map(RawValue::get);
    let answer: Option<String> = answer.and_then(|raw| serde_json::from_str(raw).ok());
    let number = |number: Option<u64>| number.map(|value| value.to_string());
    let mut draft = Draft::new("Result", &said)
        .field("subtype", &written.subtype)
        .field("isError", if has_failed { "true" } else { "" })
        .optional("turns", number(written.num_turns))
        .optional("durationMs", number(written.duration_ms))
        .optional(
            "costUsd",
            written.total_cost_usd.map(|cost| cost.to_string()),
        )
        .optional("content", answer);
    draft.outcome = Some(Outcome {
        has_failed,
        summary: Some(said),
        files_changed: None,
    });
    draft
}
