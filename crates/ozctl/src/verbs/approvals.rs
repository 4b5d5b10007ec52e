//! `ozctl approvals`: lists the requests, transient bindings and harness runs that the user can approve or deny.

use clap::Args;
use futures::FutureExt as _;
use futures::future::try_join_all;
use jiff::Timestamp;
use oz_core::for_each_kind;

use super::audit::Oz;
use crate::approvals::{self, Waiting};
use crate::choose;
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{Table, short};

/// Show the access requests, transient bindings and harness runs that wait for your approval
#[derive(Args)]
#[command(after_help = "\
Lists the requests, transient bindings and harness runs that you can approve by a rule of their template or of an access
policy, and that you have neither created nor approved or denied. `ozctl approve NAME` approves one, `ozctl deny NAME --reason WHY`
denies it.

Examples:
  ozctl approvals
  ozctl approvals -A")]
pub(crate) struct Approvals {
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    #[command(flatten)]
    oz: Oz,
}

impl Approvals {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let mut waiting = waiting(&cluster, self.all_namespaces, &self.oz.namespace).await?;
        if waiting.is_empty() {
            context.say("No requests wait for your approval.");
            return Ok(Exit::SUCCESS);
        }
        waiting.sort_by_key(|one| one.until);
        let mut head = Vec::new();
        if self.all_namespaces {
            head.push("NAMESPACE");
        }
        head.extend(["NAME", "FOR", "REQUESTER", "TEMPLATE", "DURATION", "LEFT"]);
        let tickets = waiting.iter().any(|one| one.ticket.is_some());
        if tickets {
            head.push("TICKET");
        }
        head.push("REASON");
        let mut table = Table::new(&head);
        let now = Timestamp::now();
        for one in waiting {
            let mut cells = Vec::new();
            if self.all_namespaces {
                cells.push(one.namespace);
            }
            cells.extend([
                Some(one.about.name),
                Some(one.purpose.to_owned()),
                Some(one.requester),
                Some(one.template),
                one.duration,
                Some(short(one.until.duration_since(now))),
            ]);
            if tickets {
                cells.push(one.ticket);
            }
            cells.push(one.reason);
            table.row_with_blanks(cells);
        }
        context.print(&table.to_string())?;
        Ok(Exit::SUCCESS)
    }
}

/// Returns the requests, transient bindings and harness runs that require a decision of the user.
pub(super) async fn waiting(
    cluster: &Cluster,
    everywhere: bool,
    own_namespace: &str,
) -> Result<Vec<Waiting>> {
    let me = choose::myself(cluster).await?;
    let me = &me;
    let mut lists = Vec::new();
    for_each_kind!(requests R => {
        lists.push(approvals::waiting::<R>(cluster, everywhere, me).boxed_local());
    });
    for_each_kind!(bindings B => {
        let waiting = approvals::waiting_bindings::<B>(cluster, everywhere, me, own_namespace);
        lists.push(waiting.boxed_local());
    });
    lists.push(approvals::waiting_runs(cluster, everywhere, me).boxed_local());
    Ok(try_join_all(lists).await?.concat())
}
