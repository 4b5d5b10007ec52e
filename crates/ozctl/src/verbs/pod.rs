//! `ozctl pod`: opens a session in a dedicated pod.

use clap::Args;
use clap_complete::ArgValueCompleter;
use oz_api::PodAccessRequest;

use super::exec::Session;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::target::Target;

/// Open a shell, or run one command, in a dedicated pod
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
    #[arg(add = ArgValueCompleter::new(complete::pod_targets))]
    target: Target,
    #[command(flatten)]
    session: Session,
}

impl Pod {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        self.session
            .run::<PodAccessRequest>(context, &self.target)
            .await
    }
}
