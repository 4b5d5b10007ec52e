//! `ozctl rego eval`: evaluates a Rego policy for an input at an instant, and prints the time when
//! the result will change.

use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use oz_rego::Limits;
use serde_json::json;

use super::files;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output;
use crate::rego::{evaluate, object, preview, timeout};

/// Evaluate a Rego policy
///
/// Prints the document at the path, such as `controller` for data.controller. Files of tests
/// (*_test.rego) are left out, as the operator does.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl rego eval controller -p controller.rego -i input.yaml
  ozctl rego eval controller -p policies/ -i input.json --at 2026-01-31T09:00:00Z
  ozctl rego eval controller -p policies/ --from roles.example.com/night -n shop
  ozctl rego eval controller -p policies/ -i input.yaml --preview -o yaml

Exit codes: 0 if there is a document, 1 if it is undefined or the policy fails.")]
pub(super) struct Eval {
    /// Path of the document, without data.
    #[arg(value_name = "PATH")]
    path: String,
    /// Files of Rego and of documents below data, and folders of them
    #[arg(short, long, required = true, value_name = "FILE")]
    policy: Vec<String>,
    /// File with the input, YAML or JSON; - for standard input
    #[arg(short, long, value_name = "FILE")]
    input: Option<String>,
    /// Object of the cluster that becomes the parent of the input
    #[arg(long, value_name = "PLURAL[.GROUP]/NAME")]
    from: Option<String>,
    /// The instant that time.now_ns() gives [default: now]
    #[arg(long, value_name = "INSTANT")]
    at: Option<Timestamp>,
    /// Show when the answer changes as well: by the instants that the parent names
    #[arg(long)]
    preview: bool,
    /// Maximum duration of an evaluation
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = timeout)]
    timeout: Duration,
    /// Output format
    #[arg(short, long, default_value = "json", value_name = "FORMAT")]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Json,
    Yaml,
}

impl Eval {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let policy = files::policy(&self.policy, false)?;
        let mut input = match &self.input {
            Some(file) => files::document(file)?,
            None => {
                json!({"controller": {}, "parent": {}, "children": {}, "related": {}, "finalizing": false})
            }
        };
        if let Some(word) = &self.from {
            let cluster = context.cluster().await?;
            let Some(fields) = input.as_object_mut() else {
                return Err(Failure::new("the input is not an object with a parent"));
            };
            fields.insert("parent".to_owned(), object(&cluster, word).await?);
        }
        let now = self.at.unwrap_or_else(Timestamp::now);
        let limits = Limits {
            time: self.timeout,
            ..Limits::default()
        };
        let document = match self.preview {
            true => preview(&policy, &self.path, &input, now, &limits),
            false => evaluate(&policy, &self.path, &input, now, &limits),
        }?;
        context.print(&match self.output {
            Output::Json => output::json(&document)?,
            Output::Yaml => output::yaml(&document)?,
        })?;
        Ok(Exit::SUCCESS)
    }
}
