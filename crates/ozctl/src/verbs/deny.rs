//! `ozctl deny`: denies a request of another user, which ends it.

use clap::Args;
use clap_complete::ArgValueCandidates;

use super::approve::answer;
use super::audit::Oz;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;

/// Deny an access request, transient binding or harness run of another user
#[derive(Args)]
#[command(after_help = "\
The denial of one approver ends the request, regardless of its approvals. The requester sees the approver and the
reason.

Examples:
  ozctl deny alice-x7k2p --reason 'wait for the freeze to end'")]
pub(crate) struct Deny {
    /// Name of the request, or KIND/NAME
    #[arg(add = ArgValueCandidates::new(complete::requests))]
    name: String,
    /// Reason, for the requester and the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    oz: Oz,
}

impl Deny {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        answer(context, &self.name, &self.oz, (false, Some(&self.reason))).await
    }
}
