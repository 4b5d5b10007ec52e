//! The NetworkPolicy of the pods of one object. It exists before the pods, so that there is no moment without it, and
//! selects them by the label with the UID of the object.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Selector, SelectorExt as _};
use oz_api::{Egress, Ingress, Network, labels};

use super::Owner;

/// The label with its name that every namespace has.
const NAME_OF_NAMESPACE: &str = "kubernetes.io/metadata.name";

/// The network of pods that open and accept no connection, except for those in their NetworkPolicy.
pub const CLOSED: Network = Network {
    egress: Egress::None,
    ingress: Ingress::None,
};

/// The form of the lists of a NetworkPolicy that are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyLists {
    /// They are left out, as the API server stores them. A grant compares the stored policy with this form, and ends at
    /// any difference.
    Omitted,
    /// They are stated. A run or seed repairs its policy by an apply, which removes only what another client added to
    /// stated fields.
    Stated,
}

/// Checks whether any direction is closed, so that a NetworkPolicy is needed.
#[must_use]
pub fn is_shut(network: Network) -> bool {
    network.egress != Egress::All || network.ingress != Ingress::All
}

/// Returns the rules for the pods of `owner`: the directions that `network` closes, and in `open` the connections that
/// the pods may open all the same. A closed direction without a rule permits no connection.
#[must_use]
pub fn rules(
    owner: &Owner<'_>,
    network: Network,
    open: Option<Vec<NetworkPolicyEgressRule>>,
    empty: EmptyLists,
) -> NetworkPolicySpec {
    let directions = [
        ("Ingress", network.ingress != Ingress::All),
        ("Egress", network.egress != Egress::All),
    ];
    let closed = directions.iter().filter(|(_, is_closed)| *is_closed);
    let selected = BTreeMap::from([(labels::OWNER_UID.to_owned(), owner.uid.to_owned())]);
    let is_stated = empty == EmptyLists::Stated;
    NetworkPolicySpec {
        pod_selector: Some(LabelSelector {
            match_labels: Some(selected),
            match_expressions: is_stated.then(Vec::new),
        }),
        policy_types: Some(closed.map(|(name, _)| (*name).to_owned()).collect()),
        egress: open,
        ingress: is_stated.then(Vec::new),
    }
}

/// Returns the peer that stands for the pods with these labels, of a namespace or else of that of the policy.
#[must_use]
pub fn pods(namespace: Option<&str>, labels: BTreeMap<String, String>) -> NetworkPolicyPeer {
    let select = |labels| LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    };
    let name = |name: &str| BTreeMap::from([(NAME_OF_NAMESPACE.to_owned(), name.to_owned())]);
    NetworkPolicyPeer {
        namespace_selector: namespace.map(name).map(select),
        pod_selector: Some(select(labels)),
        ip_block: None,
    }
}

/// Returns the peer that stands for the addresses of a range (ADDRESS/BITS), except for those in other ranges.
#[must_use]
pub fn addresses(cidr: &str, except: Option<Vec<String>>) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        ip_block: Some(IPBlock {
            cidr: cidr.to_owned(),
            except,
        }),
        ..NetworkPolicyPeer::default()
    }
}

/// Returns the ports of a protocol from the first to the last, both included.
#[must_use]
pub fn port(protocol: &str, first: u16, last: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(first.into())),
        end_port: (first != last).then(|| last.into()),
        protocol: Some(protocol.to_owned()),
    }
}

/// Returns the NetworkPolicies other than `own` that open what `network` closes to a pod with one of these sets of
/// labels, in the order of their names. NetworkPolicies are additive: another one may open what that of oz closes.
/// See <https://kubernetes.io/docs/concepts/services-networking/network-policies/#the-two-sorts-of-pod-isolation>.
pub fn openers<'a, 'p, P: Borrow<NetworkPolicy>>(
    network: Network,
    own: &str,
    labels: impl IntoIterator<Item = &'a BTreeMap<String, String>> + Clone,
    policies: &'p [P],
) -> Vec<&'p NetworkPolicy> {
    let mut found: Vec<&'p NetworkPolicy> = policies
        .iter()
        .map(Borrow::borrow)
        .filter(|policy| policy.metadata.name.as_deref() != Some(own))
        .filter(|policy| {
            let spec = policy.spec.as_ref();
            spec.is_some_and(|spec| {
                let mut sets = labels.clone().into_iter();
                opens(spec, network) && sets.any(|labels| selects(spec, labels))
            })
        })
        .collect();
    found.sort_unstable_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    found
}

/// Checks whether a policy permits any traffic in a direction that `network` closes. A policy without a rule permits
/// none.
fn opens(spec: &NetworkPolicySpec, network: Network) -> bool {
    let says = |direction: &str| {
        let mut types = spec.policy_types.iter().flatten();
        types.any(|type_| type_ == direction)
    };
    let into = spec.ingress.as_ref().is_some_and(|rules| !rules.is_empty());
    let out = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
    (network.ingress != Ingress::All && says("Ingress") && into)
        || (network.egress != Egress::All && says("Egress") && out)
}

fn selects(spec: &NetworkPolicySpec, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = spec.pod_selector.clone() else {
        return true;
    };
    // A policy with an unreadable selector is reported.
    Selector::try_from(selector).map_or(true, |selector| selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OWNER: Owner<'static> = Owner {
        group: "paddock.dev",
        kind: "HarnessRun",
        namespace: "birds",
        name: "squawk",
        uid: "u-1",
    };

    #[test]
    fn policy_closes_the_directions_of_the_network_in_both_forms() {
        let open = NetworkPolicyEgressRule {
            to: Some(vec![addresses("192.0.2.0/24", None)]),
            ports: Some(vec![port("TCP", 443, 443), port("TCP", 8000, 8080)]),
        };
        let egress = json!([{
            "to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
            "ports": [
                {"port": 443, "protocol": "TCP"},
                {"port": 8000, "endPort": 8080, "protocol": "TCP"},
            ],
        }]);
        for (egress_of, ingress_of, types) in [
            (Egress::All, Ingress::All, json!([])),
            (Egress::All, Ingress::None, json!(["Ingress"])),
            (Egress::Dns, Ingress::All, json!(["Egress"])),
            (Egress::None, Ingress::None, json!(["Ingress", "Egress"])),
        ] {
            let network = Network {
                egress: egress_of,
                ingress: ingress_of,
            };
            assert_eq!(is_shut(network), types != json!([]), "{network:?}");
            let made = |open, empty| json!(rules(&OWNER, network, open, empty));
            let mut expected = json!({
                "podSelector": {"matchLabels": {"oz.wizardofoz.co/owner-uid": "u-1"}},
                "policyTypes": types,
            });
            assert_eq!(made(None, EmptyLists::Omitted), expected);
            expected["podSelector"]["matchExpressions"] = json!([]);
            expected["ingress"] = json!([]);
            expected["egress"] = egress.clone();
            assert_eq!(made(Some(vec![open.clone()]), EmptyLists::Stated), expected);
        }
    }

    #[test]
    fn peer_is_pods_of_one_namespace_or_addresses_with_exceptions() {
        let labels = BTreeMap::from([("app".to_owned(), "broker".to_owned())]);
        assert_eq!(
            json!(pods(Some("oz-system"), labels.clone())),
            json!({
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "oz-system"}},
                "podSelector": {"matchLabels": {"app": "broker"}},
            })
        );
        assert_eq!(
            json!(pods(None, labels)),
            json!({"podSelector": {"matchLabels": {"app": "broker"}}})
        );
        assert_eq!(
            json!(addresses("::/0", Some(vec!["fe80::/10".to_owned()]))),
            json!({"ipBlock": {"cidr": "::/0", "except": ["fe80::/10"]}})
        );
    }
}
