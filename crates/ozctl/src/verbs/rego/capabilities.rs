//! `ozctl rego capabilities`: prints what policies can use, for other tools.

use clap::Args;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output;

/// Print the capabilities file of OPA for policies of oz
///
/// It lists the built-in functions and features that a policy can use here, in the format of OPA 1.22.4.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl rego capabilities > capabilities.json
  opa check --capabilities capabilities.json policies/")]
pub(super) struct Capabilities {}

impl Capabilities {
    pub(super) fn run(self, context: &Context) -> Result<Exit> {
        context.print(&output::json(&oz_rego::capabilities())?)?;
        Ok(Exit::SUCCESS)
    }
}
