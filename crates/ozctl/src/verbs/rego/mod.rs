//! `ozctl rego`: evaluates, tests and checks Rego policies as the operator would, on the user's
//! machine. `oz_rego` compiles and evaluates them; the verbs here read files, and show results.

mod capabilities;
mod check;
mod eval;
mod files;
mod test;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;

/// Evaluate, test and check Rego policies
///
/// All files of one command are one policy. ozctl reads it as Rego v1 or, if that fails, as v0. It
/// must be a function of its input and the instant: ozctl refuses HTTP requests and random numbers.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl rego check policies/
  ozctl rego test policies/ --coverage
  ozctl rego eval controller -p policies/ -i input.yaml --at 2026-01-31T09:00:00Z
  ozctl rego eval controller -p policies/ --from roles.example.com/night --preview")]
pub(crate) struct Rego {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Eval(eval::Eval),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Test(test::Test),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Check(check::Check),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Capabilities(capabilities::Capabilities),
}

impl Rego {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        match self.verb {
            Verb::Eval(verb) => verb.run(context).await,
            Verb::Test(verb) => verb.run(context),
            Verb::Check(verb) => verb.run(context),
            Verb::Capabilities(verb) => verb.run(context),
        }
    }
}
