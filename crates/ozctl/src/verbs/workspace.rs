//! `ozctl workspace`: the storage on which harness runs work.

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use kube::ResourceExt;
use kube::api::DeleteParams;
use oz_api::harness::Workspace as Object;

use super::run::list::{Flags, What, show};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::run::installed;
use crate::{complete, names};

/// Show and delete workspaces of harness runs (needs the chart's harness.enabled)
///
/// A workspace is storage that one run at a time works on; files and HOME outlive a run.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl workspace list -o wide
  ozctl workspace end demo")]
pub(crate) struct Workspace {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    List(List),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    End(End),
}

/// Show workspaces of harness runs, and the run that uses each
#[derive(Args)]
struct List {
    #[command(flatten)]
    flags: Flags,
}

/// Delete workspaces of harness runs, with their PersistentVolumeClaims and files
#[derive(Args)]
#[command(after_help = "\
Deletes the Workspace, and its PersistentVolumeClaim with all files. A workspace
that a run uses is deleted when the run has ended.

Examples:
  ozctl workspace end demo")]
struct End {
    /// The workspaces
    #[arg(required = true, value_name = "WORKSPACE", add = ArgValueCandidates::new(complete::workspaces))]
    names: Vec<String>,
}

impl Workspace {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        match self.verb {
            Verb::List(list) => show(context, What::Workspaces, &list.flags).await,
            Verb::End(end) => end.run(context).await,
        }
        .map_err(installed)
    }
}

impl End {
    async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let mut failed: Option<Failure> = None;
        for name in &self.names {
            let name = name.strip_prefix("workspace.paddock.dev/").unwrap_or(name);
            // A failure with one name does not prevent the end of the others.
            if let Err(failure) = end(context, &cluster, name).await
                && let Some(before) = failed.replace(failure)
            {
                context.say(context.error(&before).trim_end());
            }
        }
        failed.map_or(Ok(Exit::SUCCESS), Err)
    }
}

async fn end(context: &Context, cluster: &Cluster, name: &str) -> Result<()> {
    let name = names::checked(name)?;
    let api = cluster.api::<Object>();
    let found = cluster.find(&api, name).await?;
    let found = found.ok_or_else(|| {
        Failure::new(format!(
            "no workspace {name} in namespace {}",
            cluster.namespace
        ))
        .next("`ozctl workspace list` lists the existing workspaces")
    })?;
    let parameters = DeleteParams {
        preconditions: Some(kube::api::Preconditions {
            uid: found.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let answer = cluster.answer(api.delete(name, &parameters)).await;
    match answer {
        Err(failure) if !failure.is_not_found() => return Err(failure),
        _ => {}
    }
    let holder = found.status.and_then(|status| status.active_run_ref);
    context.print(&match holder {
        Some(run) => {
            crate::output::line(&format!(
                "Workspace {name} is deleted when run {run} has ended"
            )) + "\n"
        }
        None => format!("Workspace {name} ended\n"),
    })
}
