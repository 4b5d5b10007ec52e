//! The NetworkPolicy of an access pod. It exists before the pod, so that there is no moment without
//! it, and selects the pod by the label with the request's UID.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::owner;
use crate::access::grant::Grant;
use crate::api::{Egress, Ingress};
use crate::labels;

/// Where name servers listen.
const DNS: i32 = 53;

/// The policy that a grant asks for; `None` if everything is allowed.
#[must_use]
pub fn network_policy(grant: &Grant) -> Option<NetworkPolicy> {
    let network = grant.own_pod.as_ref()?.network?;
    let mut types = Vec::new();
    if network.ingress == Ingress::None {
        types.push("Ingress".to_owned());
    }
    // A type without a rule allows nothing.
    let egress = match network.egress {
        Egress::All => None,
        Egress::Dns => Some(vec![name_servers()]),
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

fn name_servers() -> NetworkPolicyEgressRule {
    let port = |protocol: &str| NetworkPolicyPort {
        port: Some(IntOrString::Int(DNS)),
        protocol: Some(protocol.to_owned()),
        end_port: None,
    };
    NetworkPolicyEgressRule {
        ports: Some(vec![port("UDP"), port("TCP")]),
        to: None,
    }
}
