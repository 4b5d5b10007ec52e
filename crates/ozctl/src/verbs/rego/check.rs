//! `ozctl rego check`: checks whether a Rego policy compiles, and prints all errors if it does not.

use clap::{Args, ValueEnum};
use oz_rego::Policy;
use serde_json::json;

use super::files;
use crate::context::{Context, Style};
use crate::exit::Exit;
use crate::failure::Result;
use crate::output;

/// Check that a Rego policy compiles
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl rego check controller.rego
  ozctl rego check policies/ -o json

Exit codes: 0 if it compiles, 1 if it does not or a file is unreadable.")]
pub(super) struct Check {
    /// Files of Rego and of documents below data, and folders of them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Output {
    Text,
    Json,
}

impl Check {
    pub(super) fn run(self, context: &Context) -> Result<Exit> {
        let texts = files::texts(&self.files, true)?;
        let compiled = Policy::compile(&texts);
        let documents = texts
            .iter()
            .filter(|(name, _)| oz_rego::is_document(name))
            .count();
        let modules = texts.len() - documents;
        let errors = compiled
            .as_ref()
            .err()
            .map_or(&[][..], |errors| errors.errors());
        let language = compiled
            .as_ref()
            .ok()
            .map(|policy| policy.language().to_string());
        match self.output {
            Output::Json => context.print(&output::json(&json!({
                "modules": modules,
                "documents": documents,
                "language": language,
                "errors": errors.iter().map(|error| json!({
                    "file": error.file, "line": error.line, "column": error.column,
                    "message": error.message,
                })).collect::<Vec<_>>(),
            }))?)?,
            Output::Text => {
                for error in errors {
                    let text = output::line(&error.to_string());
                    let (place, said) = text.split_at(text.find(": ").map_or(0, |at| at + 1));
                    let place = context.paint_output(Style::Bold, place);
                    context.print(&format!("{place}{said}\n"))?;
                }
                let mut texts = output::counted(modules, "module");
                if documents > 0 {
                    texts = format!("{texts} and {}", output::counted(documents, "document"));
                }
                context.say(&match (&language, errors.len()) {
                    (Some(language), _) => format!("{texts} checked, Rego {language}"),
                    (None, 1) => format!("{texts} checked, 1 error"),
                    (None, count) => format!("{texts} checked, {count} errors"),
                });
            }
        }
        Ok(if errors.is_empty() {
            Exit::SUCCESS
        } else {
            Exit::FAILURE
        })
    }
}
