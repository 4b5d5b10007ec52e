//! `ozctl rego eval`: evaluates a Rego policy for an input at an instant, and prints the time when
//! the result will change.

use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::Api;
use kube::core::DynamicObject;
use kube::discovery::{Discovery, Scope};
use oz_composites::{compared, ends};
use oz_rego::{Answer, EvaluateError, Limits};
use serde_json::{Value, json};

use super::files;
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output;

/// Ask a policy
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
    /// Files of Rego, and folders of them
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
    /// How long one evaluation may last
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = files::duration)]
    timeout: Duration,
    /// How to show the document
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
                return Err(Failure::new(
                    "the input is no object that could have a parent",
                ));
            };
            fields.insert("parent".to_owned(), parent(&cluster, word).await?);
        }
        let now = self.at.unwrap_or_else(Timestamp::now);
        let limits = Limits {
            time: self.timeout,
            ..Limits::default()
        };
        let document = if self.preview {
            // For an input of another shape: the instants in any of its fields.
            let parent = input.get("parent").unwrap_or(&input);
            let instants = ends::instants(parent, now);
            let part = |answer: &Answer| answer.document().map(compared);
            let preview = policy.preview(&self.path, &input, &instants, now, &limits, part);
            let preview = preview.map_err(|error| self.failed(&error))?;
            let changes = preview
                .changes
                .iter()
                .map(|change| json!({"at": change.at, "answer": change.answer.document()}));
            json!({
                "now": preview.now.document(),
                "changes": changes.collect::<Vec<_>>(),
                "triedUntil": preview.tried_until,
            })
        } else {
            let answer = policy.evaluate(&self.path, &input, now, &limits);
            match answer.map_err(|error| self.failed(&error))? {
                Answer::Document(document) => document,
                Answer::Undefined => {
                    return Err(Failure::new(format!("data.{} is undefined", self.path))
                        .next("check the path: it begins with the package of the policy"));
                }
            }
        };
        context.print(&match self.output {
            Output::Json => output::json(&document)?,
            Output::Yaml => output::yaml(&document)?,
        })?;
        Ok(Exit::SUCCESS)
    }

    fn failed(&self, error: &EvaluateError) -> Failure {
        let failure = Failure::new(error.to_string());
        match error {
            EvaluateError::Time(_) => failure.next("give it longer with --timeout"),
            _ => failure,
        }
    }
}

/// Returns an object by the name of its kind, as in kubectl.
async fn parent(cluster: &Cluster, word: &str) -> Result<Value> {
    let (kind, name) = word.split_once('/').ok_or_else(|| {
        Failure::new(format!(
            "{word} is no PLURAL/NAME, such as roles.example.com/night"
        ))
    })?;
    let name = crate::names::checked(name)?;
    let (plural, group) = match kind.split_once('.') {
        Some((plural, group)) => (plural, Some(group)),
        None => (kind, None),
    };
    let discovery = Discovery::new(cluster.client.clone()).run_aggregated();
    let discovery = cluster.answer(discovery).await?;
    let groups = discovery
        .groups()
        .filter(|found| group.is_none_or(|group| found.name() == group));
    let mut found = groups.flat_map(|group| group.recommended_resources());
    let Some((resource, capabilities)) = found.find(|(resource, _)| resource.plural == plural)
    else {
        return Err(Failure::new(format!("the cluster knows no {kind}"))
            .next("`kubectl api-resources` lists the kinds that there are"));
    };
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(cluster.client.clone(), &resource),
        Scope::Namespaced => {
            Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource)
        }
    };
    output::to_value(&cluster.answer(api.get(name)).await?)
}
