//! The NetworkPolicy of an access pod.

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyEgressRule};
use oz_api::Egress;

use crate::access::grant::{Grant, OwnPod};
use crate::confine::network::{self, EmptyLists};
use crate::confine::{NameServer, Owner};

/// Returns the NetworkPolicy of a grant; `None` if all connections are permitted.
#[must_use]
pub fn network_policy(grant: &Grant) -> Option<NetworkPolicy> {
    let own = grant.own_pod.as_ref()?;
    let network = own.network.filter(|network| network::is_shut(*network))?;
    let open = (network.egress == Egress::Dns).then(|| name_servers(own));
    let owner = Owner::from_request(&grant.request);
    Some(NetworkPolicy {
        metadata: owner.owned(grant.object_name()),
        spec: Some(network::rules(&owner, network, open, EmptyLists::Omitted)),
    })
}

fn name_servers(own: &OwnPod) -> Vec<NetworkPolicyEgressRule> {
    match &own.name_servers {
        Some(servers) => servers.iter().map(NameServer::rule).collect(),
        None => vec![NameServer::anywhere()],
    }
}
