//! `ozctl run events`: prints the actions of an agent, from the status of its run.

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use oz_api::harness::RunEvent;

use super::outcome;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::interrupts::Interrupts;
use crate::run::{find_run, follow, fresh, installed, phase};
use crate::{complete, output};

/// Show what happens in a run
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run events hello-x7k2p
  ozctl run events hello-x7k2p -f -o json | jq -r .summary

The status of a run keeps the newest events only; `ozctl run logs` reads all of
them once it is over. With -o json each line is one event.")]
pub(crate) struct Events {
    /// The run
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    name: String,
    /// Go on with what happens from now on, until the run is over
    #[arg(short, long)]
    follow: bool,
    /// Taken for compatibility: nothing is asked over and over, events come by a watch
    #[arg(long, value_name = "DURATION", hide = true)]
    poll: Option<String>,
    /// How to show them
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
        let mut each = |run: &oz_api::harness::HarnessRun| {
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
        if !self.follow {
            each(&run)?;
            return Ok(Exit::SUCCESS);
        }
        let mut interrupts = Interrupts::new()?;
        tokio::select! {
            followed = follow(&cluster, run, each) => followed.map(|_| Exit::SUCCESS),
            exit = interrupts.next() => Ok(exit),
        }
    }

    fn line(&self, event: &RunEvent) -> Result<String> {
        Ok(match self.output {
            EventFormat::Text => outcome::event(event) + "\n",
            EventFormat::Json => output::to_value(event)?.to_string() + "\n",
        })
    }
}
