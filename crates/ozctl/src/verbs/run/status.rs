//! `ozctl run status`: shows one run, its dependencies and its outputs.

use clap::Args;
use clap_complete::ArgValueCandidates;
use oz_api::harness::HarnessRun;
use oz_runs::queue::workspace_of;

use super::{found, outcome};
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::harness::installed;
use crate::output::{self, ObjectFormat, instant, line};

/// Show one run
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run status hello-x7k2p
  ozctl run status hello-x7k2p -o json

`ozctl run explain` says why a run waits.")]
pub(crate) struct Status {
    /// The run
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    name: String,
    /// How to show it
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: ObjectFormat,
}

impl Status {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let run = found(&cluster, &self.name).await.map_err(installed)?;
        output::object(context, self.output, &run, || text(&run))?;
        Ok(Exit::SUCCESS)
    }
}

fn text(run: &HarnessRun) -> String {
    let status = run.status.clone().unwrap_or_default();
    let spec = &run.spec;
    let created = run.metadata.creation_timestamp.as_ref();
    let template = match spec.template_ref.kind {
        Some(kind) => format!("{kind} {}", spec.template_ref.name),
        None => spec.template_ref.name.clone(),
    };
    let mut rows = vec![
        ("Run", run.metadata.name.clone()),
        ("Phase", Some(outcome::phase(run).to_string())),
        ("Template", Some(template)),
        ("Workspace", workspace_of(run)),
        ("Model", spec.model.clone()),
        ("Timeout", spec.timeout.clone()),
        ("Reason", spec.reason.clone()),
        ("Submitted", created.map(|at| instant(at.0))),
        ("Started", status.start_time.map(instant)),
        ("Over", status.completion_time.map(instant)),
    ];
    for credential in &status.credentials {
        let hosts = credential.hosts.join(", ");
        rows.push((
            "Credential",
            Some(format!("{} for {hosts}", credential.name)),
        ));
    }
    let mut text = String::new();
    for (title, value) in rows {
        if let Some(value) = value {
            text.push_str(&format!("{title}: {}\n", line(&value)));
        }
    }
    for known in &status.conditions {
        let text_of = format!(
            "{} {}: {} ({})",
            known.status, known.type_, known.message, known.reason
        );
        text.push_str(&format!("  {}\n", line(&text_of)));
    }
    text + &outcome::outputs(&status)
}
