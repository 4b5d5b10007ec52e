//! `ozctl run explain`: explains why a run waits.

use clap::Args;
use clap_complete::ArgValueCandidates;
use kube::ResourceExt;
use serde_json::json;

use super::findings;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, TextFormat, line};
use crate::run::{Explanation, explain, find_run, installed};

/// Show why a harness run waits, or how it ended
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run explain hello-x7k2p
  ozctl run explain hello-x7k2p -o json

Checks the template, the grants that it lacks, whether its policies are verified
and their Secrets readable, the place in the queue of the workspace, the
conditions of the run, and the connections that its proxy refused. A check for
which you lack the rights is marked ?.

Exit codes: 0 if no check fails, 1 if one does.")]
pub(crate) struct Explain {
    /// The run
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    name: String,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl Explain {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let run = find_run(&cluster, &self.name).await.map_err(installed)?;
        let explanation = explain(&cluster, run).await.map_err(installed)?;
        let report = json!({
            "run": explanation.run.name_any(),
            "namespace": cluster.namespace,
            "phase": explanation.phase,
            "findings": findings::values(&explanation.findings),
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
    text.push_str(&findings::rows(context, &explanation.findings));
    text
}
