//! `ozctl run logs`: prints the output of a run during the run, and its transcript after the end.

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use oz_runs::reader::{EVENTS_FILE, RAW_FILE, RESULT_FILE};

use super::reader::{self, ReaderFlags};
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::pass_on;
use crate::run::{self, copy, find_run, installed, output, phase};

/// Show the output of a harness run's pod, or the transcript of a run that has ended
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run logs hello-x7k2p -f            of a run that lives
  ozctl run logs hello-x7k2p               its events, when it has ended
  ozctl run logs hello-x7k2p --result
  ozctl run logs hello-x7k2p --raw > raw.jsonl

The transcript of a run that has ended is on its workspace. A pod with read-only
access to the run's directory reads it, and is deleted afterwards, so this
requires the right to create pods in the namespace. On a terminal, control
characters are replaced; elsewhere the bytes are unchanged.

Exit codes: 0, 1 if ozctl failed.")]
pub(crate) struct Logs {
    /// The run
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    name: String,
    /// Container of an active run [default: agent]
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<Container>,
    /// Follow the log of an active run
    #[arg(short, long)]
    follow: bool,
    /// Print the unchanged output of the agent (raw.jsonl)
    #[arg(long, conflicts_with_all = ["result", "file"])]
    raw: bool,
    /// Print the result of the run (result.json)
    #[arg(long, conflicts_with = "file")]
    result: bool,
    /// Another file of the transcript
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    #[command(flatten)]
    reader: ReaderFlags,
}

/// A container of a run's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Container {
    // The agent
    Agent,
    // What reads the agent's output
    Runtime,
}

impl Logs {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let run = find_run(&cluster, &self.name).await.map_err(installed)?;
        let file = self.wanted();
        if phase(&run).is_terminal() {
            let file = file.unwrap_or(EVENTS_FILE);
            return reader::read(context, &cluster, &run, file, &self.reader).await;
        }
        if let Some(file) = file {
            let name = &self.name;
            return Err(Failure::new(format!(
                "run {name} has not ended: its {file} can be read then"
            ))
            .next(format!(
                "`ozctl run logs {name} -f` shows its output until then"
            )));
        }
        let container = match self.container.unwrap_or(Container::Agent) {
            Container::Agent => run::Container::Agent,
            Container::Runtime => run::Container::Runtime,
        };
        let stream = output(&cluster, &run, container, self.follow).await?;
        copy(stream, pass_on(context)).await?;
        Ok(Exit::SUCCESS)
    }

    fn wanted(&self) -> Option<&str> {
        match (self.raw, self.result) {
            (true, _) => Some(RAW_FILE),
            (_, true) => Some(RESULT_FILE),
            _ => self.file.as_deref(),
        }
    }
}
