//! `ozctl run status`: shows one run, its dependencies and its outputs.

use clap::Args;
use clap_complete::ArgValueCandidates;
use oz_api::harness::HarnessRun;
use oz_runs::queue::workspace_of;

use super::outcome;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, ObjectFormat, instant, line};
use crate::run::{find_run, installed, phase};

/// Show the status of one harness run
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run status hello-x7k2p
  ozctl run status hello-x7k2p -o json

`ozctl run explain` shows why a run waits.")]
pub(crate) struct Status {
    /// The run
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    name: String,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: ObjectFormat,
}

impl Status {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let run = find_run(&cluster, &self.name).await.map_err(installed)?;
        output::object(context, self.output, &run, || text(&run))?;
        Ok(Exit::SUCCESS)
    }
}

fn text(run: &HarnessRun) -> String {
    let status = run.status.as_ref();
    let spec = &run.spec;
    let created = run.metadata.creation_timestamp.as_ref();
    let template = match spec.template_ref.kind {
        Some(kind) => format!("{kind} {}", spec.template_ref.name),
        None => spec.template_ref.name.clone(),
    };
    let mut rows = vec![
        ("Run", run.metadata.name.clone()),
        ("Phase", Some(phase(run).to_string())),
        ("Template", Some(template)),
        ("Workspace", workspace_of(run)),
        ("Model", spec.model.clone()),
        ("Timeout", spec.timeout.clone()),
        ("Reason", spec.reason.clone()),
        ("Submitted", created.map(|at| instant(at.0))),
        (
            "Started",
            status.and_then(|status| status.start_time).map(instant),
        ),
        (
            "Over",
            status
                .and_then(|status| status.completion_time)
                .map(instant),
        ),
    ];
    let credentials = status.map(|status| &status.credentials);
    for credential in credentials.into_iter().flatten() {
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
    let conditions = status.map(|status| &status.conditions);
    for known in conditions.into_iter().flatten() {
        let text_of = format!(
            "{} {}: {} ({})",
            known.status, known.type_, known.message, known.reason
        );
        text.push_str(&format!("  {}\n", line(&text_of)));
    }
    text + &outcome::outputs(run)
}
