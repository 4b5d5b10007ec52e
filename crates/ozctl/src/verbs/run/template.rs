//! `ozctl run template`: shows the effective template, and the requirements that its runs lack
//! here.

use clap::Args;
use clap_complete::ArgValueCandidates;
use oz_api::harness::TemplateKind;
use serde_json::Value;

use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, TextFormat, line};
use crate::run::{installed, report_template, template_kind};

/// Show the effective harness template, and its missing grants in the namespace
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run template claude-code
  ozctl run template echo --template-kind ClusterHarnessTemplate -o json")]
pub(crate) struct Template {
    /// The template
    #[arg(value_name = "TEMPLATE", add = ArgValueCandidates::new(complete::harness_templates))]
    name: String,
    /// Which kind of template [default: the namespace's own, else the cluster's]
    #[arg(long, value_name = "KIND", value_parser = template_kind)]
    template_kind: Option<TemplateKind>,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl Template {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let report = report_template(&cluster, &self.name, self.template_kind).await;
        let report = output::to_value(&report.map_err(installed)?)?;
        context.print(&match self.output {
            TextFormat::Json => output::json(&report)?,
            TextFormat::Yaml => output::yaml(&report)?,
            TextFormat::Text => text(&report),
        })?;
        Ok(Exit::SUCCESS)
    }
}

fn text(report: &Value) -> String {
    let mut text = String::new();
    for (title, field) in [
        ("Template", "name"),
        ("Kind", "kind"),
        ("Base", "base"),
        ("Harness", "harness"),
        ("Image", "image"),
        ("Command", "command"),
        ("Arguments", "args"),
        ("Model", "model"),
        ("Timeout", "timeout"),
        ("Grace (s)", "graceSeconds"),
        ("Runtime", "runtime"),
        ("Workspace", "workspace"),
        ("Credentials", "credentials"),
        ("Egress", "egress"),
        ("Policies", "policies"),
        ("Lacking", "gaps"),
    ] {
        let shown = match &report[field] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Array(all) if all.is_empty() => continue,
            Value::Array(all) => {
                let words = all.iter().filter_map(Value::as_str);
                words.collect::<Vec<_>>().join(" ")
            }
            other => other.to_string(),
        };
        text.push_str(&format!("{title}: {}\n", line(&shown)));
    }
    text
}
