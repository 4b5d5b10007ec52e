//! `ozctl run cancel`: ends runs before their time. The verb deletes the run; the operator ends its
//! pod, and keeps the record.

use clap::Args;
use clap_complete::ArgValueCandidates;

use crate::cluster::Cluster;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::run::{self, Cancelled, installed};

/// Cancel a harness run
#[derive(Args)]
#[command(after_help = "\
Deletes the run: its agent terminates within its grace period, and its audit
records stay. A run that has ended is not changed.

Examples:
  ozctl run cancel hello-x7k2p
  ozctl run cancel $(ozctl run list -o name)")]
pub(crate) struct Cancel {
    /// The runs
    #[arg(required = true, value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    names: Vec<String>,
}

impl Cancel {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let mut failed: Option<Failure> = None;
        for name in &self.names {
            // The format of `-o name`.
            let name = name.strip_prefix("harnessrun.paddock.dev/").unwrap_or(name);
            // A failure with one name does not prevent the end of the others.
            if let Err(failure) = cancel(context, &cluster, name).await
                && let Some(before) = failed.replace(failure)
            {
                context.say(context.error(&before).trim_end());
            }
        }
        failed.map_or(Ok(Exit::SUCCESS), Err)
    }
}

async fn cancel(context: &Context, cluster: &Cluster, name: &str) -> Result<()> {
    match run::cancel(cluster, name).await.map_err(installed)? {
        Cancelled::Deleted => context.print(&format!("HarnessRun {name} cancelled\n"))?,
        Cancelled::Over(phase) => context.say_plain(&format!(
            "HarnessRun {name} has ended ({phase}), and is not changed"
        )),
        Cancelled::Gone => {}
    }
    Ok(())
}
