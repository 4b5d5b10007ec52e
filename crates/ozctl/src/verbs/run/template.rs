//! `ozctl run template`: shows the effective template, and the requirements that its runs lack
//! here.

use clap::Args;
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;
use kube::ResourceExt;
use oz_api::harness::{EgressNeed, TemplateKind, TemplateRef};
use oz_runs::policy::Matching;
use oz_runs::requires::gaps;
use serde_json::{Value, json};

use super::template_kind;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::harness::{self, installed};
use crate::output::{self, TextFormat, line};

/// Show what a template comes to, and what it lacks in the namespace
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
    /// How to show it
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl Template {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let report = self.report(context).await.map_err(installed)?;
        context.print(&match self.output {
            TextFormat::Json => output::json(&report)?,
            TextFormat::Yaml => output::yaml(&report)?,
            TextFormat::Text => text(&report),
        })?;
        Ok(Exit::SUCCESS)
    }

    async fn report(&self, context: &Context) -> Result<Value> {
        let cluster = context.cluster().await?;
        let reference = TemplateRef {
            name: self.name.clone(),
            kind: self.template_kind,
        };
        let template = harness::find(&cluster, &reference).await?;
        let template = template.ok_or_else(|| harness::no_template(&cluster, &reference))?;
        let resolved = template.resolved()?;
        let policies = harness::policies(&cluster).await?;
        let matching = Matching::of(&policies, &template.name).unexpired(Timestamp::now());
        let lacking = gaps(resolved, &matching);
        let base = template.spec.base_template_ref.as_ref();
        let names: Vec<String> = matching.iter().map(ResourceExt::name_any).collect();
        Ok(json!({
            "name": template.name,
            "kind": template.kind,
            "base": base.map(|base| &base.name),
            "harness": resolved.harness,
            "image": resolved.image,
            "command": resolved.command,
            "args": resolved.args,
            "model": resolved.model,
            "timeout": resolved.timeout.to_string(),
            "graceSeconds": resolved.grace_seconds,
            "runtime": resolved.runtime.image,
            "workspace": resolved.workspace.required.then_some(&resolved.workspace.mount_path),
            "credentials": resolved.credentials,
            "egress": resolved.egress.iter().map(host).collect::<Vec<_>>(),
            "policies": names,
            "gaps": (!lacking.is_empty()).then(|| lacking.to_string()),
        }))
    }
}

/// Formats a host with its ports.
fn host(need: &EgressNeed) -> String {
    let ports: Vec<String> = need.ports.iter().map(ToString::to_string).collect();
    match need.ports.is_empty() || need.ports.contains(&0) {
        true => format!("{}:*", need.host),
        false => format!("{}:{}", need.host, ports.join(",")),
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
                let words = all.iter().map(|one| one.as_str().unwrap_or_default());
                words.collect::<Vec<_>>().join(" ")
            }
            other => other.to_string(),
        };
        text.push_str(&format!("{title}: {}\n", line(&shown)));
    }
    text
}
