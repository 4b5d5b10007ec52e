//! `ozctl review`: writes the finding of a user about an emergency, or about a use of break-glass.

use clap::Args;
use kube::ResourceExt as _;
use oz_api::Finding;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::{names, reviews};

/// Write what you found of an emergency, or of what break-glass opened
#[derive(Args)]
#[command(after_help = "\
What is found is on record with your name, as the API server knows you, and stays as it is. Whoever asked for the
emergency, or got in, does not review it.

Findings:
  Justified     it was an emergency
  Unjustified   it was none, or something else was done than was needed
  FollowUp      something has to be done about it, which the reason names

Examples:
  ozctl review alice-x7k2p-0a1b2c3d --finding Justified --reason 'INC-42: the queue was full'")]
pub(crate) struct Review {
    /// Name of the review, as `ozctl reviews` has it
    name: String,
    /// What you found: Justified, Unjustified or FollowUp
    #[arg(long, value_name = "FINDING", value_parser = finding)]
    finding: Finding,
    /// Why, for whoever asked and for the record
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
