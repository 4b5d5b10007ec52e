//! `ozctl watch`: prints changes of requests, approvals, denials, reviews and locks.

use std::cell::Cell;

use clap::{Args, ValueEnum};
use futures::FutureExt as _;
use futures::future::{LocalBoxFuture, try_join_all};
use kube::Api;
use oz_api::AccessLock;
use oz_core::for_each_kind;
use oz_core::kinds::Kind as _;

use crate::changes::{Change, Feed, Link, OnChange, OnLink, Stop, Watched};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::{self, line};

/// Show what changes of requests, answers, reviews and locks, until Ctrl-C
///
/// One line for each change: what it is, who it was, how far it is, until when, and why. What is there when it begins is
/// not shown; `ozctl requests`, `approvals`, `reviews` and `locks` do. An API server that starts anew ends nothing: what
/// came meanwhile is shown when it answers again, as far as it is still there. Standard error says when nothing comes
/// any more, and when it does again.
///
/// What you may not list is left out, and said at the beginning.
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
    /// How to show them
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

/// The state of a watch.
struct Watching<'a> {
    context: &'a Context,
    cluster: &'a Cluster,
    told: OnChange<'a>,
    link: OnLink<'a>,
    follow: Vec<LocalBoxFuture<'a, Result<(), Stop>>>,
    refused: Option<Failure>,
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
        let mut watching = Watching {
            context,
            cluster: &cluster,
            told: &told,
            link: &link,
            follow: Vec::new(),
            refused: None,
        };
        for_each_kind!(requests R => {
            watching.begin(R::title(), cluster.api_in::<R>(self.all_namespaces)).await?;
        });
        for_each_kind!(approvals A => {
            watching.begin(A::title(), cluster.api_in::<A>(self.all_namespaces)).await?;
        });
        for_each_kind!(reviews V => {
            watching.begin(V::title(), cluster.api_in::<V>(self.all_namespaces)).await?;
        });
        let locks = Api::<AccessLock>::all(cluster.client.clone());
        watching.begin(AccessLock::title(), locks).await?;
        if let (true, Some(refused)) = (watching.follow.is_empty(), watching.refused) {
            return Err(refused);
        }
        context.say("watching; Ctrl-C ends it");
        match try_join_all(watching.follow).await {
            Ok(_) | Err(Stop::Enough) => Ok(Exit::SUCCESS),
            Err(Stop::Failed(failure)) => Err(failure),
        }
    }

    fn text(&self, change: &Change) -> Result<String> {
        if self.output == Format::Json {
            let value = output::to_value(change)?;
            return Ok(format!("{value}\n"));
        }
        let standing = &change.standing;
        let namespace = change.namespace.as_ref().filter(|_| self.all_namespaces);
        let place = namespace.map(|namespace| format!("{namespace}/"));
        let phase = match change.deleted {
            true => "Deleted",
            false => &standing.phase,
        };
        let mut cells = vec![
            format!(
                "{} {}{}",
                change.kind,
                place.unwrap_or_default(),
                change.name
            ),
            phase.to_owned(),
        ];
        cells.extend(standing.who.clone());
        cells.push(standing.what.clone());
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
                context.say_plain(&format!("no changes come: {why}; connecting again"));
            }
            broken.set(broken.get() + 1);
        }
        Link::Back => {
            broken.set(broken.get().saturating_sub(1));
            if broken.get() == 0 {
                context.say("watching again; what came meanwhile is shown");
            }
        }
    }
}

impl<'a> Watching<'a> {
    /// Begins to watch a kind, if the user may do so.
    async fn begin<K: Watched>(&mut self, title: &str, api: Api<K>) -> Result<()> {
        match Feed::begin(self.cluster, api).await {
            Ok(feed) => {
                let (cluster, told, link) = (self.cluster, self.told, self.link);
                self.follow
                    .push(feed.follow(cluster, told, link).boxed_local());
                Ok(())
            }
            Err(failure) if failure.is_forbidden() || failure.is_unknown_kind() => {
                self.context
                    .say(&format!("{title}: not watched: {}", failure.message()));
                self.refused = Some(failure);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }
}
