//! The result of the check for other NetworkPolicies that open a dedicated pod, at the moment of the grant. It is only
//! information.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::{Network, conditions};
use serde::{Deserialize, Serialize};

use crate::access::denial::list;
use crate::access::status::Fact;
use crate::confine::network::openers;
use crate::controller::Failure;

/// The result of the check whether other NetworkPolicies open more connections of a pod than its own policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Isolation {
    /// No other policy opens more.
    Alone,
    /// These policies open more.
    Opened(String),
    /// The reason why the result is unknown.
    Unknown(String),
}

impl Isolation {
    /// Returns the effect of these policies of the namespace on `network`, for a pod with these labels and a policy of
    /// its own with the name `own`.
    pub(super) fn compute(
        network: Network,
        own: &str,
        labels: &BTreeMap<String, String>,
        policies: Result<&[NetworkPolicy], &Failure>,
    ) -> Self {
        let policies = match policies {
            Ok(policies) => policies,
            Err(failure) => return Self::Unknown(failure.to_string()),
        };
        let openers = openers(network, own, [labels], policies);
        let names = openers.iter().filter_map(|it| it.metadata.name.clone());
        let names: Vec<String> = names.collect();
        match names[..] {
            [] => Self::Alone,
            _ => Self::Opened(list(&names)),
        }
    }

    /// Returns the condition with the result.
    pub(super) fn fact(&self) -> Fact {
        let type_ = conditions::NETWORK_ISOLATED;
        match self {
            Self::Alone => Fact::holds(
                type_,
                "When it was granted, no other NetworkPolicy permitted more connections",
            ),
            Self::Opened(names) => Fact::fails(
                type_,
                "OtherPolicies",
                format!(
                    "These NetworkPolicies select the pod as well, and permit more connections \
                     than its template does: {names}"
                ),
            ),
            Self::Unknown(why) => Fact::fails(
                type_,
                "NetworkPoliciesUnreadable",
                format!("Whether other NetworkPolicies permit more connections is unknown: {why}"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use oz_api::{Egress, Ingress};
    use serde_json::{Value, json};

    use super::*;

    const SHUT: Network = Network {
        egress: Egress::Dns,
        ingress: Ingress::None,
    };

    fn policy(name: &str, spec: Value) -> NetworkPolicy {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn found(network: Network, spec: Value) -> Isolation {
        let labels = BTreeMap::from([("team".to_owned(), "shop".to_owned())]);
        Isolation::compute(network, "own", &labels, Ok(&[policy("other", spec)]))
    }

    #[test]
    fn a_policy_that_selects_the_pod_and_lets_more_through_is_named() {
        let opened = Isolation::Opened("other".to_owned());
        let into = |selector: Value| json!({"podSelector": selector, "policyTypes": ["Ingress"], "ingress": [{}]});
        for selector in [
            json!({}),
            json!({"matchLabels": {"team": "shop"}}),
            json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
            json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "shop"]}]}),
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}),
            // An operator of a future Kubernetes release.
            json!({"matchExpressions": [{"key": "team", "operator": "Like", "values": ["s%"]}]}),
        ] {
            assert_eq!(found(SHUT, into(selector.clone())), opened, "{selector}");
        }
        for selector in [
            json!({"matchLabels": {"team": "other"}}),
            json!({"matchLabels": {"team": "shop", "app": "web"}}),
            json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
        ] {
            assert_eq!(
                found(SHUT, into(selector.clone())),
                Isolation::Alone,
                "{selector}"
            );
        }
    }

    #[test]
    fn only_a_direction_that_the_template_shuts_can_be_opened() {
        let spec = |types: &[&str], egress: usize, ingress: usize| {
            let rules = |count| vec![json!({}); count];
            json!({
                "podSelector": {}, "policyTypes": types, "egress": rules(egress),
                "ingress": rules(ingress),
            })
        };
        let out = Network {
            egress: Egress::None,
            ingress: Ingress::All,
        };
        let into = Network {
            egress: Egress::All,
            ingress: Ingress::None,
        };
        let both = &["Ingress", "Egress"][..];
        for (network, spec, is_opened) in [
            (out, spec(&["Egress"], 1, 0), true),
            (out, spec(&["Ingress"], 0, 1), false),
            (into, spec(&["Egress"], 1, 0), false),
            (into, spec(both, 1, 1), true),
            // A policy without rules opens nothing.
            (SHUT, spec(both, 0, 0), false),
            // Rules of a direction that the policy does not cover.
            (SHUT, spec(&["Ingress"], 1, 0), false),
        ] {
            let opened = found(network, spec.clone()) != Isolation::Alone;
            assert_eq!(opened, is_opened, "{network:?} {spec}");
        }
    }

    #[test]
    fn many_are_counted_and_ones_own_is_not_meant() {
        let spec = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]});
        let named = |name: String| policy(&name, spec.clone());
        let mut policies: Vec<NetworkPolicy> =
            (0..9).map(|number| named(format!("p{number}"))).collect();
        policies.push(named("own".to_owned()));
        let told = Isolation::compute(SHUT, "own", &BTreeMap::new(), Ok(&policies));
        assert_eq!(
            told,
            Isolation::Opened("p0, p1, p2, p3, p4 and 4 more".to_owned())
        );
        let failure = Failure::transient("Timeout", "the API server does not respond");
        let told = Isolation::compute(SHUT, "own", &BTreeMap::new(), Err(&failure));
        let fact = told.fact();
        assert!(
            !fact.holds
                && fact.reason == "NetworkPoliciesUnreadable"
                && fact.message.contains("the API server does not respond")
        );
    }
}
