//! The addresses that the NetworkPolicies of runs and seeds open: name servers, and ports of public addresses.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyPeer};
use oz_api::harness::is_any_port;
use oz_api::labels;
use oz_core::confine::{NameServer, network};
use serde::{Deserialize, Serialize};

use super::policy::Matching;

/// The ranges that no pod of a run or seed reaches, since cloud providers serve credentials there.
pub(super) const LINK_LOCAL: [&str; 3] = ["169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128"];
/// The ranges that no pod of a run reaches: link-local, private and shared addresses, and those that stand for granted
/// names in the pod.
const NOT_PUBLIC: [&str; 9] = [
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
];
/// The maximum number of ranges of ports in a NetworkPolicy. Beyond it, the NetworkPolicy opens every port: the proxy
/// decides about each of them.
const MAX_PORTS: usize = 128;
const EVERY_PORT: Ports = Ports(1, u16::MAX);

/// The first and the last port of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports(pub u16, pub u16);

/// The addresses and ports that the NetworkPolicy of a run opens for its proxy, in addition to the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Ranges of TCP ports, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Ports>,
    /// Ranges of addresses (ADDRESS/BITS) that stay closed, in addition to those that are not public.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
}

impl Reach {
    /// Returns the ports that these policies grant on any host, and every address but the denied ones.
    #[must_use]
    pub fn new(policies: &Matching<'_>, denied: &[IpNet]) -> Self {
        let denied: BTreeSet<IpNet> = denied.iter().map(IpNet::trunc).collect();
        Self {
            ports: ports(policies),
            denied: denied.iter().map(IpNet::to_string).collect(),
        }
    }

    /// Returns the rules of a NetworkPolicy for them.
    pub(super) fn rules(&self) -> Vec<NetworkPolicyEgressRule> {
        let mut rules = vec![NameServer::anywhere()];
        if !self.ports.is_empty() {
            let denied = self.denied.iter().filter_map(|it| it.parse().ok());
            let denied: Vec<IpNet> = denied.collect();
            let port = |Ports(first, last): &Ports| network::port("TCP", *first, *last);
            rules.push(NetworkPolicyEgressRule {
                to: Some(all_but(&NOT_PUBLIC, &denied)),
                ports: Some(self.ports.iter().map(port).collect()),
            });
        }
        rules
    }
}

fn ports(policies: &Matching<'_>) -> Vec<Ports> {
    let granted = policies
        .iter()
        .flat_map(|policy| &policy.spec.grants.egress);
    let mut all = BTreeSet::new();
    for grant in granted {
        if is_any_port(&grant.ports) {
            return vec![EVERY_PORT];
        }
        all.extend(
            grant
                .ports
                .iter()
                .filter_map(|port| u16::try_from(*port).ok()),
        );
    }
    let mut ranges: Vec<Ports> = Vec::new();
    for port in all {
        match ranges.last_mut() {
            Some(Ports(_, last)) if last.checked_add(1) == Some(port) => *last = port,
            _ => ranges.push(Ports(port, port)),
        }
    }
    match ranges.len() > MAX_PORTS {
        true => vec![EVERY_PORT],
        false => ranges,
    }
}

/// Returns the peers for all addresses but those in `always` and in `denied`.
pub(super) fn all_but(always: &[&str], denied: &[IpNet]) -> Vec<NetworkPolicyPeer> {
    let parts = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|all| {
        let is_v6 = all.contains(':');
        let always = always.iter().filter(|range| range.contains(':') == is_v6);
        let mut except: Vec<String> = always.map(|range| (*range).to_owned()).collect();
        let denied = denied
            .iter()
            .filter(|range| range.addr().is_ipv6() == is_v6);
        let denied: BTreeSet<IpNet> = denied.map(IpNet::trunc).collect();
        // An exception from all would be no policy that the API server takes.
        if denied.iter().any(|range| range.prefix_len() == 0) {
            return None;
        }
        for range in denied.iter().map(IpNet::to_string) {
            if !except.contains(&range) {
                except.push(range);
            }
        }
        Some(network::addresses(all, Some(except)))
    });
    let parts: Vec<NetworkPolicyPeer> = parts.collect();
    if parts.is_empty() {
        // A rule for no address would be one for any.
        let of_none = BTreeMap::from([(labels::OWNER_UID.to_owned(), String::new())]);
        return vec![network::pods(None, of_none)];
    }
    parts
}

#[cfg(test)]
mod tests {
    use oz_api::harness::{BrokerPolicy, EgressGrant};
    use serde_json::{Value, json};

    use super::*;

    fn ranges(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Returns parts of a NetworkPolicy as JSON.
    fn listed<T: Serialize>(parts: &[T]) -> Vec<Value> {
        parts.iter().map(|part| json!(part)).collect()
    }

    fn name_servers() -> Value {
        json!({"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]})
    }

    fn block(cidr: &str, except: &[&str]) -> Value {
        json!({"ipBlock": {"cidr": cidr, "except": except}})
    }

    #[test]
    fn denied_ranges_are_exceptions_of_their_family() {
        let allowed = |denied: &[&str]| listed(&all_but(&LINK_LOCAL, &ranges(denied)));
        let v6 = block("::/0", &["fe80::/10", "fd00:ec2::254/128"]);
        assert_eq!(
            allowed(&["10.96.0.1/12", "10.0.0.5/32", "10.96.0.0/12"]),
            [
                block(
                    "0.0.0.0/0",
                    &["169.254.0.0/16", "10.0.0.5/32", "10.96.0.0/12"]
                ),
                v6.clone()
            ]
        );
        assert_eq!(allowed(&["0.0.0.0/0", "10.0.0.0/8"]), [v6]);
        let none = allowed(&["0.0.0.0/0", "::/0"]);
        assert!(none.len() == 1 && none[0]["ipBlock"].is_null(), "{none:?}");
    }

    fn reach(grants: &[&[i32]], denied: &[&str]) -> Reach {
        let mut policy = BrokerPolicy::default();
        policy.spec.applies_to_templates = vec!["*".to_owned()];
        let grant = |ports: &&[i32]| EgressGrant {
            host: "a.example.com".to_owned(),
            ports: ports.to_vec(),
        };
        policy.spec.grants.egress = grants.iter().map(grant).collect();
        Reach::new(
            &Matching::from_policies([&policy], "parrot"),
            &ranges(denied),
        )
    }

    #[test]
    fn run_reaches_granted_ports_of_public_addresses_and_name_servers() {
        let denied = ["10.0.0.0/8", "192.0.2.7/24", "2001:db8::/32"];
        let rules = listed(&reach(&[&[443, 8443], &[8444, 80, 443]], &denied).rules());
        assert_eq!(rules[0], name_servers());
        let ports = json!([
            {"protocol": "TCP", "port": 80}, {"protocol": "TCP", "port": 443},
            {"protocol": "TCP", "port": 8443, "endPort": 8444},
        ]);
        assert_eq!(rules[1]["ports"], ports);
        let v4 = [&NOT_PUBLIC[..6], &["192.0.2.0/24"]].concat();
        let v6 = [&NOT_PUBLIC[6..], &["2001:db8::/32"]].concat();
        assert_eq!(
            rules[1]["to"],
            json!([block("0.0.0.0/0", &v4), block("::/0", &v6)])
        );
    }

    #[test]
    fn grants_of_any_port_or_of_many_open_every_tcp_port() {
        let every = json!([{"protocol": "TCP", "port": 1, "endPort": 65535}]);
        let odd: Vec<i32> = (0..200).map(|port| 2 * port + 1).collect();
        for grants in [&[&[443][..], &[]][..], &[&[0, 443]], &[&odd]] {
            let rules = listed(&reach(grants, &[]).rules());
            assert_eq!(rules[1]["ports"], every);
        }
    }

    #[test]
    fn run_without_granted_hosts_reaches_name_servers_alone() {
        assert_eq!(listed(&reach(&[], &[]).rules()), [name_servers()]);
    }
}
