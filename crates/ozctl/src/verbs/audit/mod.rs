//! `ozctl audit`: lists accesses to pods with their approvals, and shows whether the audit trail
//! was changed or truncated since. `oz_client::audit` reads and verifies it; the verbs here show it.

mod attest;
mod entitlements;
mod evidence;
mod keys;
mod list;
mod prune;
mod read;
mod show;
mod tail;
mod verify;

use oz_trail::Action;

pub(crate) use self::read::entries;
pub(crate) use self::verify::Oz;
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;

/// Read, verify and export the audit trail
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl audit list --actor alice --since 24h
  ozctl audit list --pod web-0 -o csv
  ozctl audit show 20260102t150405000000z-0123456789ab
  ozctl audit keys > oz.pub     once, kept outside the cluster
  ozctl audit verify --key oz.pub
  ozctl audit verify --key oz.pub --offline --log operator.jsonl
  ozctl audit prune --before 2160h
  ozctl audit entitlements
  ozctl audit attest review.csv
  ozctl audit evidence --from 2026-01-01T00:00:00Z -o evidence.tar")]
pub(crate) struct Audit {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    List(list::List),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Show(show::Show),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Tail(tail::Tail),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Verify(verify::Verify),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Export(list::Export),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Keys(keys::Keys),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Prune(prune::Prune),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Entitlements(entitlements::ShowEntitlements),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Attest(attest::Attest),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Evidence(evidence::Evidence),
}

impl Audit {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        match self.verb {
            Verb::List(verb) => verb.run(context).await,
            Verb::Show(verb) => verb.run(context).await,
            Verb::Tail(verb) => verb.run(context).await,
            Verb::Verify(verb) => verb.run(context).await,
            Verb::Export(verb) => verb.run(context).await,
            Verb::Keys(verb) => verb.run(context).await,
            Verb::Prune(verb) => verb.run(context).await,
            Verb::Entitlements(verb) => verb.run(context).await,
            Verb::Attest(verb) => verb.run(context).await,
            Verb::Evidence(verb) => verb.run(context).await,
        }
    }
}

/// Shows the newest audit records of the namespace for one run and one action, at most `limit`, the
/// oldest of them first.
pub(crate) async fn newest(
    context: &Context,
    run: Option<String>,
    action: Option<Action>,
    limit: usize,
) -> Result<Exit> {
    let cluster = context.cluster().await?;
    let entries = crate::audit::newest(&cluster, run, action, limit).await?;
    if entries.is_empty() {
        context.say("No such records found.");
        return Ok(Exit::SUCCESS);
    }
    context.print(&read::table(&entries, true).to_string())?;
    Ok(Exit::SUCCESS)
}
