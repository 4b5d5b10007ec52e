//! `ozctl pod`: a session in a pod of one's own.

use clap::Args;
use clap_complete::ArgValueCandidates;
use oz_core::api::{Operation, PodAccessRequest};

use super::exec::{SessionFlags, not_run};
use crate::access::{self, AccessFlags, Granted, Want};
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::session;
use crate::target::Target;

/// Open a shell, or run one command, in a pod of your own
///
/// The pod is made as a PodAccessTemplate says, for you alone, and ends with
/// the session. Everything else is as with `ozctl exec`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl pod deploy/web                   a pod like those of Deployment web
  ozctl pod template/debug -- rake db:migrate
  ozctl pod debug --duration 2h --keep   and later: --request NAME

Exit codes are those of `ozctl exec`.")]
pub(crate) struct Pod {
    /// The workload to have a pod of, or template/NAME
    #[arg(add = ArgValueCandidates::new(complete::pod_templates))]
    target: Target,
    #[command(flatten)]
    session: SessionFlags,
    #[command(flatten)]
    access: AccessFlags,
    /// The command and its arguments [default: the template's, else /bin/sh]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Pod {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let want = Want {
            target: &self.target,
            operation: Operation::Exec,
            container: self.session.container.as_deref(),
        };
        let body = async |cluster: &_, granted: &Granted| {
            let command = self.session.command(&self.command, granted);
            session::run(cluster, granted, &command).await
        };
        access::with::<PodAccessRequest>(context, &self.access, want, body)
            .await
            .map_err(not_run)
    }
}
