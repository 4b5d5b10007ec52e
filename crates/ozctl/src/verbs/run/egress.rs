//! `ozctl run egress`: prints the destinations of a run, from its status.

use std::cell::Cell;

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use oz_api::harness::{HarnessRun, RunEgress};

use super::shown::for_each_state;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, Table, instant};
use crate::run::{changed, egress, find_run, installed, phase};

/// Show the hosts that a harness run reached, and those that were denied
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run egress hello-x7k2p
  ozctl run egress hello-x7k2p -f
  ozctl run egress hello-x7k2p -o json | jq -r 'select(.refused > 0) | .host'

Port 0 is a name that the agent resolved. The status of a run keeps the last 20
destinations, the audit trail all of them: `ozctl audit list --grant RUN`. With
-o json each line is one destination.

`ozctl run explain` shows the next step for each reason.")]
pub(crate) struct Egress {
    /// The run
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    name: String,
    /// Print each change, until the run has ended
    #[arg(short, long)]
    follow: bool,
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: EgressFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EgressFormat {
    // Columns for people
    Table,
    // One JSON object a line
    Json,
}

impl Egress {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let run = find_run(&cluster, &self.name).await.map_err(installed)?;
        if egress(&run).is_empty() {
            context.say(&format!(
                "Run {} has reached no host, and was refused none.",
                self.name
            ));
        }
        let has_head = Cell::new(false);
        let mut before: Vec<RunEgress> = Vec::new();
        let each = |run: &HarnessRun| {
            let now = egress(run);
            let rows: Vec<&RunEgress> = changed(&before, now).collect();
            if !rows.is_empty() {
                let text = self.text(&rows, !has_head.replace(true))?;
                if !context.pass_on(text.as_bytes())? {
                    return Ok(true);
                }
            }
            before = now.to_vec();
            Ok(phase(run).is_terminal())
        };
        for_each_state(&cluster, run, self.follow, each).await
    }

    /// Formats destinations; the first time with the names of the columns.
    fn text(&self, rows: &[&RunEgress], with_head: bool) -> Result<String> {
        if self.output == EgressFormat::Json {
            let lines = rows
                .iter()
                .map(|row| Ok(output::to_value(row)?.to_string() + "\n"));
            return lines.collect();
        }
        let mut table = Table::new(&[
            "HOST",
            "PORT",
            "GRANTED",
            "REFUSED",
            "REASON",
            "CREDENTIAL",
            "FIRST",
            "LAST",
        ]);
        for row in rows {
            table.row(cells(row));
        }
        let text = table.to_string();
        let without_head = text.split_once('\n').map_or("", |(_, rows)| rows);
        Ok(match with_head {
            true => text,
            false => without_head.to_owned(),
        })
    }
}

fn cells(row: &RunEgress) -> Vec<String> {
    vec![
        row.host.clone(),
        row.port.to_string(),
        row.granted.to_string(),
        row.refused.to_string(),
        row.reason.clone().unwrap_or_default(),
        row.credential.clone().unwrap_or_default(),
        row.first.map(instant).unwrap_or_default(),
        row.last.map(instant).unwrap_or_default(),
    ]
}
