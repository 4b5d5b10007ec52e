//! `ozctl lint`: checks templates, access policies, requests, transient bindings, composites and
//! harness runs in files, before they reach a cluster: by the schema that the API server has, and
//! by the functions that the webhook calls.

use std::ffi::OsStr;
use std::path::Path;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::context::{Context, Style};
use crate::exit::Exit;
use crate::failure::Result;
use crate::lint::{self, Finding};
use crate::output;

/// Check templates, access policies, requests, transient bindings, composites and harness runs in
/// files
///
/// The check uses the schema and the rules of admission, without a cluster, for CI. It omits the
/// checks that require a cluster: whether targets and roles exist, whether the author has the
/// rights that a template grants, and which roles can be bound. It compiles the expressions of
/// templates and access policies, and reports approval rules that no user can satisfy. For a
/// composite it reports the condition Accepted, and whether its inline policy compiles; for a
/// policy in a ConfigMap use `ozctl rego check`. For the requirements of a harness template use
/// `ozctl run policy check`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl lint templates/*.yaml
  ozctl lint deploy/                   its files in .yaml, .yml and .json
  ozctl lint -o sarif deploy.yaml > oz.sarif
  helm template . | ozctl lint -

Exit codes: 0 without findings, 1 with findings or if a file is unreadable.")]
pub(crate) struct Lint {
    /// Files of YAML or JSON, folders of them, - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
    Sarif,
}

impl Lint {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let now = Timestamp::now();
        let mut findings = Vec::new();
        let mut checked = 0;
        for file in files(&self.files, &mut findings) {
            let file = file.as_str();
            // The other files are checked all the same: a code host requires the findings in them.
            match read(file) {
                Err(error) => findings.push(lint::unreadable(file, &error)),
                Ok(text) => {
                    let (count, found) = lint::check(file, &text, now);
                    checked += count;
                    findings.extend(found);
                }
            }
        }
        let text = match self.output {
            Output::Text => text(context, &findings),
            Output::Json => output::json(&json!({
                "checked": checked,
                "findings": findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
            }))?,
            Output::Sarif => output::json(&sarif(&findings))?,
        };
        context.print(&text)?;
        if matches!(self.output, Output::Text) {
            context.say(&format!(
                "{} of oz checked, {}",
                output::counted(checked, "object"),
                output::counted(findings.len(), "finding")
            ));
        }
        Ok(if findings.is_empty() {
            Exit::SUCCESS
        } else {
            Exit::FAILURE
        })
    }
}

/// Returns the named files, and the files in the named folders in the order of their names.
fn files(named: &[String], findings: &mut Vec<Finding>) -> Vec<String> {
    let mut all = Vec::new();
    for name in named {
        if !Path::new(name).is_dir() {
            all.push(name.clone());
            continue;
        }
        let mut inside = Vec::new();
        if let Err(error) = walk(Path::new(name), &mut inside) {
            findings.push(lint::unreadable(name, &error));
        }
        inside.sort();
        all.extend(inside);
    }
    all
}

fn walk(folder: &Path, files: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        // A link to a folder could lead in a circle.
        if kind.is_dir() {
            walk(&path, files)?;
        } else if let Some("yaml" | "yml" | "json") = path.extension().and_then(OsStr::to_str) {
            files.push(path.display().to_string());
        }
    }
    Ok(())
}

fn read(file: &str) -> std::io::Result<String> {
    match file {
        "-" => std::io::read_to_string(std::io::stdin()),
        path => std::fs::read_to_string(path),
    }
}

fn text(context: &Context, findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let place = output::line(&format!("{}:{}", finding.file, finding.line));
        let object = match &finding.object {
            Some(object) => format!(" {object}:"),
            None => String::new(),
        };
        let field = match finding.field.as_str() {
            "" => String::new(),
            field => format!(" {field}:"),
        };
        let place = context.paint_output(Style::Bold, &place);
        let said = output::line(&format!("{object}{field} {}", finding.message));
        text.push_str(&format!("{place}:{said}\n"));
    }
    text
}

/// Formats findings for code hosts: one run, one rule for each kind of finding.
fn sarif(findings: &[Finding]) -> Value {
    let rules: Vec<Value> = lint::RULES
        .iter()
        .map(|(id, text)| json!({"id": id, "shortDescription": {"text": text}}))
        .collect();
    let results: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let object = finding.object.as_deref().unwrap_or("this document");
            let field = match finding.field.as_str() {
                "" => String::new(),
                field => format!("{field}: "),
            };
            json!({
                "ruleId": finding.rule,
                "level": "error",
                "message": {"text": format!("{object}: {field}{}", finding.message)},
                "locations": [{"physicalLocation": {
                    "artifactLocation": {"uri": finding.file},
                    "region": {"startLine": finding.line},
                }}],
            })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "ozctl lint",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "results": results,
        }],
    })
}
