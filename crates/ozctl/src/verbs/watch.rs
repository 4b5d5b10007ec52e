//! `ozctl watch`: prints changes of requests, approvals, denials, reviews and locks.

use std::cell::Cell;

use clap::{Args, ValueEnum};

use crate::changes::{Change, Feeds, Link};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::{self, line};

/// Watch access requests, approvals, reviews and locks, until Ctrl-C
///
/// ozctl prints one line for each change: object, user, phase, expiry and reason. It does not print
/// the existing objects; `ozctl requests`, `approvals`, `reviews` and `locks` list them. When the
/// API server is available again after a restart, ozctl prints the changes of objects that still
/// exist. It reports the loss and the return of the connection on standard error.
///
/// Kinds that you may not list are omitted, and reported at the start.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl watch
  ozctl watch -A
  ozctl watch -A -o json | jq -r 'select(.phase == \"Waiting for approval\") | .name'")]
pub(crate) struct Watch {
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    // One line for people
    Text,
    // One JSON object a line
    Json,
}

impl Watch {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        // From here on, Ctrl-C is the regular end.
        tokio::select! {
            done = self.watch(context) => done,
            pressed = tokio::signal::ctrl_c() => {
                pressed?;
                Ok(Exit::SUCCESS)
            }
        }
    }

    async fn watch(&self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let told = |change: Change| context.pass_on(self.text(&change)?.as_bytes());
        let broken = Cell::new(0_usize);
        let link = |link: Link<'_>| said_once(context, &broken, link);
        let refused = |title: &str, failure: &Failure| {
            context.say(&format!("{title}: not watched: {}", failure.message()));
        };
        let feeds = Feeds::begin(&cluster, self.all_namespaces, &told, &link, refused).await?;
        context.say("watching; Ctrl-C stops");
        feeds.follow().await?;
        Ok(Exit::SUCCESS)
    }

    fn text(&self, change: &Change) -> Result<String> {
        if self.output == Format::Json {
            let value = output::to_value(change)?;
            return Ok(format!("{value}\n"));
        }
        let standing = &change.standing;
        let namespace = change.namespace.as_ref().filter(|_| self.all_namespaces);
        let name = match namespace {
            Some(namespace) => format!("{namespace}/{}", change.name),
            None => change.name.clone(),
        };
        let phase = match change.deleted {
            true => "Deleted",
            false => &standing.phase,
        };
        let mut cells = vec![format!("{} {name}", change.kind), phase.to_owned()];
        cells.extend(standing.user.clone());
        cells.push(standing.subject.clone());
        cells.extend(
            standing
                .until
                .map(|until| format!("until {}", output::instant(until))),
        );
        cells.extend(standing.reason.clone());
        let cells: Vec<String> = cells.iter().map(|cell| line(cell)).collect();
        Ok(format!("{}\n", cells.join("   ")))
    }
}

/// Prints once that changes no longer arrive, and once that they arrive again, for all kinds
/// together; `broken` is the number of kinds with a broken watch.
fn said_once(context: &Context, broken: &Cell<usize>, link: Link<'_>) {
    match link {
        Link::Broken(failure) => {
            if broken.get() == 0 {
                let why = failure.message();
                context.say_plain(&format!(
                    "failed to receive changes: {why}; connecting again"
                ));
            }
            broken.set(broken.get() + 1);
        }
        Link::Back => {
            broken.set(broken.get().saturating_sub(1));
            if broken.get() == 0 {
                context.say("watching again, with the changes of the interruption");
            }
        }
    }
}
