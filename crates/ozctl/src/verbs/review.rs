//! `ozctl review`: writes the finding of a user about an emergency, or about a use of break-glass.

use clap::Args;
use kube::ResourceExt as _;
use oz_api::Finding;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::{names, reviews};

/// Write the finding of an access review, of an emergency or of break-glass
#[derive(Args)]
#[command(after_help = "\
The finding is recorded with your name, as the API server authenticates you, and is immutable. The requester of the
emergency, and the user of break-glass, cannot review it.

Findings:
  Justified     it was an emergency
  Unjustified   it was not an emergency, or the actions exceeded it
  FollowUp      the reason names an action that is required

Examples:
  ozctl review alice-x7k2p-0a1b2c3d --finding Justified --reason 'INC-42: the queue was full'")]
pub(crate) struct Review {
    /// Name of the review, as `ozctl reviews` prints it
    name: String,
    /// Finding: Justified, Unjustified or FollowUp
    #[arg(long, value_name = "FINDING", value_parser = finding)]
    finding: Finding,
    /// Reason, for the requester and the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl Review {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let name = names::checked(&self.name)?;
        let cluster = context.cluster().await?;
        let written = reviews::write(&cluster, name, self.finding, &self.reason).await?;
        context.print(&format!(
            "{} of {} reviewed: {} ({})\n",
            match written.spec.break_glass {
                Some(_) => "break-glass",
                None => "emergency",
            },
            written.spec.requester.user,
            self.finding,
            written.name_any()
        ))?;
        Ok(Exit::SUCCESS)
    }
}

fn finding(text: &str) -> Result<Finding> {
    text.parse()
        .map_err(|_| Failure::new("it is Justified, Unjustified or FollowUp"))
}
