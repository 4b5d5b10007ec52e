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
emergency, and the user of break-glass, cannot review it. If the namespace of an emergency was deleted, its review is in
oz's own namespace, and the UID finds it.

Findings:
  Justified     it was an emergency
  Unjustified   it was not an emergency, or the actions exceeded it
  FollowUp      the reason names an action that is required

Examples:
  ozctl review alice-x7k2p-0a1b2c3d --finding Justified --reason 'INC-42: the queue was full'
  ozctl review 0a1b2c3d-5f3a-4e7b-9c1d-2b6e8f0a4c5d --finding Justified --reason 'INC-42: the queue was full'")]
pub(crate) struct Review {
    /// Name of the review, as `ozctl reviews` prints it; or UID of the request, whose review can be in any namespace
    #[arg(value_name = "NAME")]
    review: String,
    /// Finding: Justified, Unjustified or FollowUp
    #[arg(long, value_name = "FINDING", value_parser = finding)]
    finding: Finding,
    /// Reason, for the requester and the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl Review {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let word = names::checked(&self.review)?;
        let cluster = context.cluster().await?;
        let (namespace, name) = match names::is_uid(word) {
            true => {
                let review = reviews::find_by_uid(&cluster, word).await?;
                let name = review.name_any();
                let without = || Failure::new(format!("review {name} has no namespace"));
                (review.namespace().ok_or_else(without)?, name)
            }
            false => (cluster.namespace.clone(), word.to_owned()),
        };
        let place = (namespace.as_str(), name.as_str());
        let written = reviews::write(&cluster, place, self.finding, &self.reason).await?;
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
