//! `ozctl run logs`: prints the output of a run during the run, and its transcript after the end.

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use futures::{AsyncRead, AsyncReadExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt};
use oz_api::harness::HarnessRun;
use oz_api::labels;
use oz_runs::pod::RUN_LABEL;
use oz_runs::reader::{EVENTS_FILE, RAW_FILE, RESULT_FILE};
use oz_runs::reserved::{AGENT, RUNTIME};

use super::reader::{self, ReaderFlags};
use super::{found, outcome};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::harness::installed;
use crate::{complete, output};

/// Show what a run writes, or the transcript of one that is over
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run logs hello-x7k2p -f            of a run that lives
  ozctl run logs hello-x7k2p               its events, once it is over
  ozctl run logs hello-x7k2p --result
  ozctl run logs hello-x7k2p --raw > raw.jsonl

The transcript of a run that is over is on its workspace. It is read by a pod
that sees the run's folder alone, read-only, and that is deleted afterwards: so
you must be allowed to create pods in the namespace. On a terminal, what could
draw on it is replaced; elsewhere bytes are as they are.

Exit codes: 0, 1 if ozctl failed.")]
pub(crate) struct Logs {
    /// The run
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    name: String,
    /// Which container of a run that lives [default: agent]
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<Container>,
    /// Go on with what is written from now on, of a run that lives
    #[arg(short, long)]
    follow: bool,
    /// What the agent wrote, as it wrote it (raw.jsonl)
    #[arg(long, conflicts_with_all = ["result", "file"])]
    raw: bool,
    /// What came of the run (result.json)
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
        let run = found(&cluster, &self.name).await.map_err(installed)?;
        let file = self.wanted();
        if outcome::phase(&run).is_terminal() {
            let file = file.unwrap_or(EVENTS_FILE);
            return reader::read(context, &cluster, &run, file, &self.reader).await;
        }
        if let Some(file) = file {
            let name = &self.name;
            return Err(Failure::new(format!(
                "run {name} is not over: its {file} is read when it is"
            ))
            .next(format!(
                "`ozctl run logs {name} -f` shows what it writes meanwhile"
            )));
        }
        self.live(context, &cluster, &run).await
    }

    fn wanted(&self) -> Option<&str> {
        match (self.raw, self.result) {
            (true, _) => Some(RAW_FILE),
            (_, true) => Some(RESULT_FILE),
            _ => self.file.as_deref(),
        }
    }

    async fn live(&self, context: &Context, cluster: &Cluster, run: &HarnessRun) -> Result<Exit> {
        let pods: Api<Pod> = cluster.api();
        let selector = format!("{RUN_LABEL}={}", labels::value(&run.name_any()));
        let parameters = ListParams::default().labels(&selector);
        let found = cluster.answer(pods.list(&parameters)).await?.items;
        let job = run
            .status
            .as_ref()
            .and_then(|status| status.job_name.clone());
        let job = job.unwrap_or_else(|| run.name_any());
        // Other users may set the label on their pods, too.
        let is_its = |pod: &&Pod| {
            let mut owners = pod.owner_references().iter();
            owners.any(|owner| owner.kind == "Job" && owner.name == job)
        };
        let newest = found.iter().filter(is_its);
        let newest = newest.max_by_key(|pod| pod.creation_timestamp().map(|time| time.0));
        let Some(pod) = newest else {
            let name = run.name_any();
            return Err(Failure::new(format!("run {name} has no pod yet"))
                .next(format!("`ozctl run explain {name}` says what it waits for")));
        };
        let container = match self.container.unwrap_or(Container::Agent) {
            Container::Agent => AGENT,
            Container::Runtime => RUNTIME,
        };
        let pod = pod.name_any();
        let parameters = LogParams {
            container: Some(container.to_owned()),
            follow: self.follow,
            ..LogParams::default()
        };
        let opened = pods.log_stream(&pod, &parameters).await;
        let stream = opened.map_err(|error| {
            Failure::from(error).during(&format!("failed to read the logs of pod {pod}"))
        })?;
        copy(context, stream).await?;
        Ok(Exit::SUCCESS)
    }
}

/// Copies a stream to standard output, until the stream ends or the output has no reader: bytes
/// stay unchanged, but a terminal gets no sequence that could draw on it.
pub(super) async fn copy(context: &Context, stream: impl AsyncRead) -> Result<()> {
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let mut stream = std::pin::pin!(stream);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = stream.read(&mut buffer).await?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        let goes_on = match is_terminal {
            true => context.pass_on(output::lines(&String::from_utf8_lossy(bytes)).as_bytes()),
            false => context.pass_on(bytes),
        };
        if !goes_on? {
            return Ok(());
        }
    }
}
