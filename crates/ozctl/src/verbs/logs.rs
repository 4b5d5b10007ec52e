//! `ozctl logs`: prints the logs of a pod, if the template's operations include Log.

use clap::Args;
use clap_complete::ArgValueCompleter;
use futures::AsyncReadExt;
use kube::api::LogParams;
use oz_api::{ExecAccessRequest, Operation};
use oz_client::pods;

use super::go_duration;
use crate::access::{self, AccessFlags, Granted, Want};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::target::Target;
use crate::{complete, session};

/// Show the logs of a pod, if its template allows Log
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl logs deploy/web --tail 100
  ozctl logs pod/web-0 -c sidecar -f

Exit codes: 0, 1 if ozctl failed, 124 if access ended while following.")]
pub(crate) struct Logs {
    /// Pod or workload, as for `ozctl exec`
    #[arg(add = ArgValueCompleter::new(complete::targets))]
    target: Target,
    /// The container [default: the template's, else the pod's main one]
    #[arg(short, long)]
    container: Option<String>,
    /// Follow the log
    #[arg(short, long)]
    follow: bool,
    /// Number of lines from the end
    #[arg(long, value_name = "LINES")]
    tail: Option<i64>,
    /// Maximum age of the lines, such as 10m
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
    /// Print the time of each line
    #[arg(long)]
    timestamps: bool,
    /// Print the log of the previous container
    #[arg(short, long)]
    previous: bool,
    #[command(flatten)]
    access: AccessFlags,
}

impl Logs {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let since = match &self.since {
            None => None,
            Some(text) => {
                let since = go_duration(text);
                let since = since.ok_or_else(|| {
                    Failure::new(format!("--since: {text} is not a duration, such as 10m"))
                })?;
                Some(i64::try_from(since.as_secs()).unwrap_or(i64::MAX).max(1))
            }
        };
        let want = Want {
            target: &self.target,
            operation: Operation::Log,
            container: self.container.as_deref(),
            verb: "logs",
        };
        let body = async |cluster: &Cluster, granted: &Granted| {
            let parameters = LogParams {
                container: granted.access.container.clone(),
                follow: self.follow,
                tail_lines: self.tail,
                since_seconds: since,
                timestamps: self.timestamps,
                previous: self.previous,
                ..LogParams::default()
            };
            tokio::select! {
                result = show(context, cluster, granted, parameters) => result,
                () = session::end_of::<ExecAccessRequest>(granted) => Ok(Exit::ENDED),
            }
        };
        access::with::<ExecAccessRequest>(context, &self.access, want, body).await
    }
}

async fn show(
    context: &Context,
    cluster: &Cluster,
    granted: &Granted,
    parameters: LogParams,
) -> Result<Exit> {
    let stream = pods::logs(cluster, &granted.access.pod, parameters).await?;
    let mut stream = std::pin::pin!(stream);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = stream.read(&mut buffer).await?;
        match buffer.get(..count) {
            Some(bytes) if !bytes.is_empty() && context.pass_on(bytes)? => {}
            _ => return Ok(Exit::SUCCESS),
        }
    }
}
