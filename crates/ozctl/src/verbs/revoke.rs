//! `ozctl revoke`: gives access back, or revokes it: the verb deletes the request, and the operator
//! ends its access.

use clap::Args;
use clap_complete::ArgValueCandidates;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use oz_core::for_each_kind;
use oz_core::kinds::{AccessRequest, Kind};

use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::names::Named;
use crate::request::user;
use crate::{choose, complete};

/// Revoke access before its expiry
#[derive(Args)]
#[command(
    visible_alias = "delete",
    after_help = "\
The request is deleted; oz takes the access away at once and records it. Sessions that are open are ended if they can be: see
`kubectl get ear NAME` for its condition SessionTermination.

Examples:
  ozctl revoke alice-x7k2p
  ozctl revoke trb/lea-m2k9c
  ozctl revoke --mine"
)]
pub(crate) struct Revoke {
    /// Names of requests or transient bindings, or KIND/NAME
    #[arg(required_unless_present = "mine", add = ArgValueCandidates::new(complete::requests))]
    names: Vec<String>,
    /// All of your own in the namespace
    #[arg(long, conflicts_with = "names")]
    mine: bool,
}

impl Revoke {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let wanted = self.names.iter().map(|name| Named::revocable(name));
        let wanted: Vec<_> = wanted.collect::<Result<_>>()?;
        let cluster = context.cluster().await?;
        if self.mine {
            let me = choose::myself(&cluster).await?.user;
            let mut count = 0;
            for_each_kind!(requests R => {
                count += revoke_of::<R>(context, &cluster, &me).await?;
            });
            if count == 0 {
                context.say(&format!(
                    "{me} has no requests in namespace {}.",
                    cluster.namespace
                ));
            }
            return Ok(Exit::SUCCESS);
        }
        let mut failed: Option<Failure> = None;
        for wanted in wanted {
            // A failure with one name does not prevent the revocation of the others.
            if let Err(failure) = revoke(context, &cluster, wanted).await
                && let Some(before) = failed.replace(failure)
            {
                context.say(context.error(&before).trim_end());
            }
        }
        failed.map_or(Ok(Exit::SUCCESS), Err)
    }
}

async fn revoke(context: &Context, cluster: &Cluster, named: Named<'_>) -> Result<()> {
    let mut is_request = false;
    for_each_kind!(requests R => {
        if named.may_be::<R>() {
            is_request = true;
            if delete::<R>(context, cluster, named.name).await? {
                return Ok(());
            }
        }
    });
    for_each_kind!(bindings B => {
        if named.may_be::<B>() {
            match delete::<B>(context, cluster, named.name).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // A user who may not delete bindings gets only the message that no such request
                // exists.
                Err(failure) if named.is_of_any_kind() && is_closed(&failure) => {}
                Err(failure) => return Err(failure),
            }
        }
    });
    Err(match is_request {
        true => no_request(cluster, named.name),
        false => no_binding(cluster, named.name),
    })
}

/// Checks whether the user may not delete such objects, or their kind does not exist.
fn is_closed(failure: &Failure) -> bool {
    failure.is_forbidden() || failure.is_unknown_kind()
}

fn no_binding(cluster: &Cluster, name: &str) -> Failure {
    let namespace = &cluster.namespace;
    Failure::new(format!(
        "no transient binding {name} in namespace {namespace}"
    ))
    .next("`ozctl get trb` lists the existing ones, `ozctl get tcrb` those of the cluster")
}

/// Returns the failure for a name that no request has.
pub(super) fn no_request(cluster: &Cluster, name: &str) -> Failure {
    Failure::new(format!(
        "no request {name} in namespace {}",
        cluster.namespace
    ))
    .next("`ozctl requests` lists the existing requests")
}

async fn delete<K: Kind>(context: &Context, cluster: &Cluster, name: &str) -> Result<bool> {
    let api = cluster.objects::<K>();
    match cluster
        .answer(api.delete(name, &DeleteParams::default()))
        .await
    {
        Ok(_) => {
            context.print(&format!("{} {name} revoked\n", K::title()))?;
            Ok(true)
        }
        Err(failure) if failure.is_not_found() => Ok(false),
        Err(failure) => Err(failure),
    }
}

async fn revoke_of<R: AccessRequest>(
    context: &Context,
    cluster: &Cluster,
    me: &str,
) -> Result<usize> {
    let api = cluster.api::<R>();
    let mut count = 0;
    for request in cluster.answer(api.list(&ListParams::default())).await? {
        let over = request
            .status()
            .is_some_and(|status| status.phase.is_terminal());
        // A request that is over is a record, and is kept.
        if !over && user(&request).as_deref() == Some(me) {
            delete::<R>(context, cluster, &request.name_any()).await?;
            count += 1;
        }
    }
    Ok(count)
}
