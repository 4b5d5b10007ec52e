//! `ozctl deny`: denies a request of another user, which ends it.

use clap::Args;
use clap_complete::ArgValueCandidates;

use super::approve::answer;
use super::audit::Oz;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;

/// Deny a request or transient binding of somebody else's, which ends it
#[derive(Args)]
#[command(after_help = "\
One denial by anybody who could approve a request ends it, whatever others said. Whoever asked is told who denied it,
and why.

Examples:
  ozctl deny alice-x7k2p --reason 'wait for the freeze to end'")]
pub(crate) struct Deny {
    /// Name of the request, or KIND/NAME
    #[arg(add = ArgValueCandidates::new(complete::requests))]
    name: String,
    /// Why, for whoever asked and for the record
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
