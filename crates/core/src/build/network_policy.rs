//! The NetworkPolicy of an access pod. It exists before the pod, so that there is no moment without
//! it, and selects the pod by the label with the request's UID.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use oz_api::{Egress, Ingress, labels};

use super::{NameServer, owner};
use crate::access::grant::{Grant, OwnPod};

/// Returns the NetworkPolicy of a grant; `None` if all connections are permitted.
#[must_use]
pub fn network_policy(grant: &Grant) -> Option<NetworkPolicy> {
    let own = grant.own_pod.as_ref()?;
    let network = own.network?;
    let mut types = Vec::new();
    if network.ingress == Ingress::None {
        types.push("Ingress".to_owned());
    }
    // A type without a rule permits no connection.
    let egress = match network.egress {
        Egress::All => None,
        Egress::Dns => Some(name_servers(own)),
        Egress::None => None,
    };
    if network.egress != Egress::All {
        types.push("Egress".to_owned());
    }
    if types.is_empty() {
        return None;
    }
    let request = &grant.request;
    let selected = BTreeMap::from([(labels::OWNER_UID.to_owned(), request.uid.clone())]);
    let mut metadata = ObjectMeta {
        name: Some(grant.object_name()),
        namespace: Some(request.namespace.clone()),
        owner_references: Some(vec![owner(request)]),
        ..ObjectMeta::default()
    };
    labels::mark(&mut metadata, &request.kind, &request.name, &request.uid);
    Some(NetworkPolicy {
        metadata,
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(selected),
                ..LabelSelector::default()
            }),
            policy_types: Some(types),
            egress,
            ingress: None,
        }),
    })
}

fn name_servers(own: &OwnPod) -> Vec<NetworkPolicyEgressRule> {
    match &own.name_servers {
        Some(servers) => servers.iter().map(NameServer::rule).collect(),
        None => vec![NameServer::anywhere()],
    }
}
