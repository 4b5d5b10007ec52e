//! The list of requests.

use futures::FutureExt as _;
use futures::future::try_join_all;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::ListParams;
use oz_api::Phase;
use oz_core::for_each_kind;
use oz_core::kinds::AccessRequest;
use serde_json::Value;

use super::{Ask, status, user};
use crate::choose;
use crate::cluster::Cluster;
use crate::failure::Result;
use crate::objects::whole;

/// The requests to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// All namespaces.
    pub everywhere: bool,
    /// Lists only the user's requests.
    pub mine: bool,
    /// Lists only active requests.
    pub active: bool,
}

/// A request in a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The namespace.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The purpose, see [`AccessRequest::PURPOSE`].
    pub purpose: &'static str,
    /// The phase.
    pub phase: Phase,
    /// The requester, if it is known.
    pub requester: Option<String>,
    /// The content.
    pub asked: Ask,
    /// The pod.
    pub pod: Option<String>,
    /// The expiry.
    pub until: Option<Timestamp>,
    /// The object, as the API has it.
    pub object: Value,
}

/// Lists the requests of every kind.
///
/// # Errors
/// The requests may not be listed.
pub async fn list(cluster: &Cluster, filter: Filter) -> Result<Vec<Listed>> {
    let me = match filter.mine {
        true => Some(choose::myself(cluster).await?.user),
        false => None,
    };
    let me = me.as_deref();
    let mut lists = Vec::new();
    for_each_kind!(requests R => {
        let api = cluster.api_in::<R>(filter.everywhere);
        let list = async move {
            let found = cluster.answer(api.list(&ListParams::default())).await?;
            let listed = found.items.iter().filter_map(|one| listed(one, filter, me).transpose());
            listed.collect::<Result<Vec<Listed>>>()
        };
        lists.push(list.boxed_local());
    });
    Ok(try_join_all(lists).await?.into_iter().flatten().collect())
}

fn listed<R: AccessRequest>(
    request: &R,
    filter: Filter,
    me: Option<&str>,
) -> Result<Option<Listed>> {
    let status = status(request);
    let requester = user(request);
    if (filter.active && status.phase.is_terminal())
        || me.is_some_and(|me| requester.as_deref() != Some(me))
    {
        return Ok(None);
    }
    Ok(Some(Listed {
        namespace: request.namespace(),
        name: request.name_any(),
        purpose: R::PURPOSE,
        phase: status.phase,
        requester,
        asked: Ask::from_request(request),
        pod: status.pod_name,
        until: status.expires_at,
        object: whole(request)?,
    }))
}
