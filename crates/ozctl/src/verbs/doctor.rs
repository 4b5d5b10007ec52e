//! `ozctl doctor`: checks whether oz works here, for the current user, and reports each check, each
//! problem and its repair.

use clap::Args;
use oz_client::doctor::{self, Finding, Verdict};
use serde_json::json;

use crate::context::{Context, Style};
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, TextFormat};

/// Check the installation of oz in the cluster, with a fix for each failure
#[derive(Args)]
#[command(after_help = "\
Checks the API server and its clock, oz's CustomResourceDefinitions, your rights
in the namespace, the calls of the webhook (by a dry-run), its registration and
certificates, registrations that outlive the chart (with the command that
removes them), the operator's lease and rights, oz's configuration and whether
all its pods started with it, oz's admission policies, the keys that sign the
audit trail, the versions of all components, the templates of the namespace and
their name servers, composites and whether MetaController runs them as well,
harness runs, their brokers and broker policies, whether Paddock runs them as
well, the bindings that grant access to pods without oz, and the transient
bindings whose window has not begun. Writes nothing.

Exit codes: 0 if no check fails, 1 if one does.")]
pub(crate) struct Doctor {
    /// The namespace that oz runs in
    #[arg(long, default_value = "oz-system", value_name = "NAMESPACE")]
    oz_namespace: String,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl Doctor {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let findings = doctor::examine(&cluster, &self.oz_namespace).await;
        let text = match self.output {
            TextFormat::Text => text(context, &findings),
            TextFormat::Json => output::json(&json!({"findings": findings}))?,
            TextFormat::Yaml => output::yaml(&json!({"findings": findings}))?,
        };
        context.print(&text)?;
        Ok(if findings.iter().any(Finding::is_wrong) {
            Exit::FAILURE
        } else {
            Exit::SUCCESS
        })
    }
}

fn text(context: &Context, findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding {
        check,
        verdict,
        message,
        ..
    } in findings
    {
        let (mark, style, fix) = match verdict {
            Verdict::Good => ("good   ", Style::Green, None),
            Verdict::Wrong { fix } => ("WRONG  ", Style::Red, Some(fix)),
            Verdict::Unknown => ("unknown", Style::Yellow, None),
        };
        let mark = context.paint_output(style, mark);
        text.push_str(&format!("{mark} {check}: {message}\n"));
        if let Some(fix) = fix {
            text.push_str(&format!("        fix: {fix}\n"));
        }
    }
    text
}
