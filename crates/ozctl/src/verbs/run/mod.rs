//! `ozctl run`: submits, watches, reads and ends harness runs. `oz_runs` decides the validity of a
//! run; `oz_client::run` creates, reads and ends it; the verbs here show it.

pub(crate) mod cancel;
mod egress;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod findings;
pub(crate) mod list;
pub(crate) mod logs;
mod outcome;
mod reader;
mod shown;
pub(crate) mod status;
pub(crate) mod submit;
pub(crate) mod template;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::run::installed;

/// Run AI agents in confined pods: harness runs (needs the chart's harness.enabled)
///
/// A template defines how the agent runs and what it requires; broker policies of the namespace grant that. A run
/// uses a workspace exclusively, and ends at its expiry.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run submit -t echo --prompt 'say hello' --wait
  ozctl run list
  ozctl run events hello-x7k2p -f
  ozctl run explain hello-x7k2p      the reason why it waits
  ozctl run egress hello-x7k2p       the hosts that it reached, and denied hosts
  ozctl run logs hello-x7k2p --result
  ozctl run cancel hello-x7k2p")]
pub(crate) struct Run {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Submit(submit::Submit),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Status(status::Status),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    List(list::List),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Cancel(cancel::Cancel),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Events(events::Events),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Egress(egress::Egress),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Logs(logs::Logs),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Explain(explain::Explain),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Template(template::Template),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Policy(super::policy::Policy),
}

impl Run {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let done = match self.verb {
            Verb::Submit(verb) => verb.run(context).await,
            Verb::Status(verb) => verb.run(context).await,
            Verb::List(verb) => verb.run(context).await,
            Verb::Cancel(verb) => verb.run(context).await,
            Verb::Events(verb) => verb.run(context).await,
            Verb::Egress(verb) => verb.run(context).await,
            Verb::Logs(verb) => verb.run(context).await,
            Verb::Explain(verb) => verb.run(context).await,
            Verb::Template(verb) => verb.run(context).await,
            Verb::Policy(verb) => verb.run(context).await,
        };
        done.map_err(installed)
    }
}
