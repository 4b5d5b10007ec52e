//! The output of findings about runs and policies.

use serde_json::{Value, json};

use crate::context::{Context, Style};
use crate::output::line;
use crate::run::Finding;

/// Formats findings for programs.
pub(crate) fn values(findings: &[Finding]) -> Vec<Value> {
    let value =
        |one: &Finding| json!({"holds": one.holds, "about": one.about, "message": one.message});
    findings.iter().map(value).collect()
}

/// Formats findings as rows for users.
pub(crate) fn rows(context: &Context, findings: &[Finding]) -> String {
    let mut text = String::new();
    for one in findings {
        let (style, word) = match one.holds {
            Some(true) => (Style::Green, "yes"),
            Some(false) => (Style::Red, "no "),
            None => (Style::Yellow, "?  "),
        };
        let mark = context.paint_output(style, word);
        let message = line(&context.typed(&one.message));
        text.push_str(&format!("  {mark} {}: {message}\n", line(&one.about)));
    }
    text
}
