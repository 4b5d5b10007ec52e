//! `ozctl run events`: prints the actions of an agent, from the status of its run.

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use oz_api::harness::RunEvent;

use super::outcome;
use super::shown::for_each_state;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::run::{find_run, fresh, installed, phase};
use crate::{complete, output};

/// Show the events of a harness run
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run events hello-x7k2p
  ozctl run events hello-x7k2p -f -o json | jq -r .summary

The status of a run keeps the newest events only; `ozctl run logs` reads all of
them when it has ended. With -o json each line is one event.")]
pub(crate) struct Events {
    /// The run
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    name: String,
    /// Follow the events until the run has ended
    #[arg(short, long)]
    follow: bool,
    /// Taken for compatibility: nothing is asked over and over, events come by a watch
    #[arg(long, value_name = "DURATION", hide = true)]
    poll: Option<String>,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: EventFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EventFormat {
    // A line for people
    Text,
    // One JSON object a line
    Json,
}

impl Events {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let run = find_run(&cluster, &self.name).await.map_err(installed)?;
        let mut before: Vec<RunEvent> = Vec::new();
        let each = |run: &oz_api::harness::HarnessRun| {
            let status = run.status.as_ref();
            let events = status.map_or(&[][..], |status| &status.recent_events[..]);
            for event in fresh(&before, events) {
                if !context.pass_on(self.line(event)?.as_bytes())? {
                    return Ok(true);
                }
            }
            before = events.to_vec();
            Ok(phase(run).is_terminal())
        };
        for_each_state(&cluster, run, self.follow, each).await
    }

    fn line(&self, event: &RunEvent) -> Result<String> {
        Ok(match self.output {
            EventFormat::Text => outcome::event(event) + "\n",
            EventFormat::Json => output::to_value(event)?.to_string() + "\n",
        })
    }
}
