//! `ozctl run explain`: explains why a run waits.

use clap::Args;
use clap_complete::ArgValueCandidates;
use kube::ResourceExt;
use serde_json::json;

use crate::complete;
use crate::context::{Context, Style};
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, TextFormat, line};
use crate::run::{Explanation, explain, find_run, installed};

/// Show why a run waits, or how it ended
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run explain hello-x7k2p
  ozctl run explain hello-x7k2p -o json

What is looked at: the template, what it lacks of policies, the place in the
queue of the workspace, and what the operator said. What you may not read is
marked ?.

Exit codes: 0 if nothing is in its way, 1 if something is.")]
pub(crate) struct Explain {
    /// The run
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    name: String,
    /// How to show it
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl Explain {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let run = find_run(&cluster, &self.name).await.map_err(installed)?;
        let explanation = explain(&cluster, run).await.map_err(installed)?;
        let findings = explanation
            .findings
            .iter()
            .map(|one| json!({"holds": one.holds, "about": one.about, "message": one.message}));
        let report = json!({
            "run": explanation.run.name_any(),
            "namespace": cluster.namespace,
            "phase": explanation.phase,
            "findings": findings.collect::<Vec<_>>(),
        });
        let text = match self.output {
            TextFormat::Json => output::json(&report)?,
            TextFormat::Yaml => output::yaml(&report)?,
            TextFormat::Text => text(context, &explanation),
        };
        context.print(&text)?;
        Ok(match explanation.is_yes() {
            true => Exit::SUCCESS,
            false => Exit::FAILURE,
        })
    }
}

fn text(context: &Context, explanation: &Explanation) -> String {
    let name = explanation.run.name_any();
    let mut text = line(&format!("HarnessRun {name}: {}", explanation.phase)) + "\n";
    for one in &explanation.findings {
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
