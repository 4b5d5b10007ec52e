//! `ozctl approve`: approves a request of another user.

use clap::Args;
use clap_complete::ArgValueCandidates;
use oz_api::Name;

use super::approvals::waiting;
use super::audit::Oz;
use crate::approvals::{self, Waiting};
use crate::cluster::Cluster;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::names::Named;

/// Approve an access request, transient binding or harness run of another user
#[derive(Args)]
#[command(after_help = "\
The approval is recorded with your name, as the API server authenticates you. It is for the current content of the
request and its template: if either changes before access is granted, the approval has no effect. Until then
`kubectl delete ara NAME` withdraws it.

Examples:
  ozctl approve alice-x7k2p
  ozctl approve alice-x7k2p --reason 'seen INC-42'
  ozctl approve trb/on-call
  ozctl approve hr/nightly-report")]
pub(crate) struct Approve {
    /// Name of the request, or KIND/NAME
    #[arg(add = ArgValueCandidates::new(complete::requests))]
    name: String,
    /// Reason; some templates require one
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    oz: Oz,
}

impl Approve {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        answer(
            context,
            &self.name,
            &self.oz,
            (true, self.reason.as_deref()),
        )
        .await
    }
}

/// Approves or denies the object of this name, if it requires a decision of the user.
pub(super) async fn answer(
    context: &Context,
    word: &str,
    oz: &Oz,
    (approval, reason): (bool, Option<&str>),
) -> Result<Exit> {
    let named = Named::approvable(word)?;
    let cluster = context.cluster().await?;
    let waiting = waiting(&cluster, false, &oz.namespace).await?;
    let of_kind = |one: &&Waiting| {
        let title: &str = one.about.kind.into();
        one.about.name == named.name && named.is_called(title)
    };
    let found: Vec<&Waiting> = waiting.iter().filter(of_kind).collect();
    let one = match found.as_slice() {
        [one] => one,
        [] => return Err(none(&cluster, named.name)),
        [..] => {
            let message = format!(
                "several requests that wait for your approval have the name {}",
                named.name
            );
            let next = "write ear/NAME, par/NAME, trb/NAME, tcrb/NAME or hr/NAME";
            return Err(Failure::new(message).next(next));
        }
    };
    let given = approvals::answer(&cluster, one, approval, reason).await?;
    let verb = if approval { "approved" } else { "denied" };
    let answer = Name::from_metadata(&given.metadata)?;
    context.print(&format!(
        "{} {} of {} {verb} ({answer})\n",
        one.about.kind, one.about.name, one.requester
    ))?;
    Ok(Exit::SUCCESS)
}

fn none(cluster: &Cluster, name: &str) -> Failure {
    Failure::new(format!(
        "no request or transient binding {name} in namespace {} waits for your approval: it has \
         ended, is your own, you have approved or denied it already, or its template or access \
         policies name other approvers",
        cluster.namespace
    ))
    .next(format!(
        "`ozctl explain {name}` shows its missing approvals, `ozctl approvals` lists the requests \
            that wait for your approval"
    ))
}
