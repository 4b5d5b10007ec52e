//! The name servers to which a pod with restricted network may connect: their addresses depend on the
//! cluster, and are a value of the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyPeer};
use serde::{Deserialize, Serialize};

use super::network::{addresses, pods, port};

/// The port of name servers, unless another port is given.
const DNS: u16 = 53;

/// A name server: pods of a namespace with a label, or addresses; and a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NameServer {
    peer: Peer,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Peer {
    Pods {
        namespace: String,
        label: String,
        value: String,
    },
    Addresses(String),
}

/// The error for a text that does not name a name server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a name server: write NAMESPACE/LABEL=VALUE, such as \
     kube-system/k8s-app=kube-dns, or ADDRESS/BITS, such as 169.254.20.10/32; either may end in \
     :PORT"
)]
pub struct NameServerError(String);

impl NameServer {
    /// Returns the name servers of most clusters, by the label that kube-dns and CoreDNS have.
    #[must_use]
    pub fn usual() -> Self {
        Self {
            peer: Peer::Pods {
                namespace: "kube-system".to_owned(),
                label: "k8s-app".to_owned(),
                value: "kube-dns".to_owned(),
            },
            port: DNS,
        }
    }

    /// Returns the namespace of the name server's pods, and the selector of their labels; `None` for
    /// addresses.
    #[must_use]
    pub fn pods(&self) -> Option<(&str, String)> {
        match &self.peer {
            Peer::Pods {
                namespace,
                label,
                value,
            } => Some((namespace, format!("{label}={value}"))),
            Peer::Addresses(_) => None,
        }
    }

    /// Returns the rule that permits a pod to connect to the name server.
    #[must_use]
    pub fn rule(&self) -> NetworkPolicyEgressRule {
        let peer = match &self.peer {
            Peer::Pods {
                namespace,
                label,
                value,
            } => pods(
                Some(namespace),
                BTreeMap::from([(label.clone(), value.clone())]),
            ),
            Peer::Addresses(cidr) => addresses(cidr, None),
        };
        queries(self.port, Some(vec![peer]))
    }

    /// Returns the rule that permits queries to any address: for runs and seeds, to which the setting with the name
    /// servers does not apply, and for grants that were made before oz had this setting.
    #[must_use]
    pub fn anywhere() -> NetworkPolicyEgressRule {
        queries(DNS, None)
    }
}

fn queries(number: u16, to: Option<Vec<NetworkPolicyPeer>>) -> NetworkPolicyEgressRule {
    let ports = ["UDP", "TCP"].map(|protocol| port(protocol, number, number));
    NetworkPolicyEgressRule {
        ports: Some(ports.into()),
        to,
    }
}

impl FromStr for NameServer {
    type Err = NameServerError;

    fn from_str(text: &str) -> Result<Self, NameServerError> {
        read(text).ok_or_else(|| NameServerError(text.to_owned()))
    }
}

fn read(text: &str) -> Option<NameServer> {
    let with_port = |last: &str| match last.rsplit_once(':') {
        Some((last, port)) => {
            let port = port.parse().ok().filter(|port| *port != 0)?;
            Some((last.to_owned(), port))
        }
        None => Some((last.to_owned(), DNS)),
    };
    if let Some((place, value)) = text.split_once('=') {
        let (namespace, label) = place.split_once('/')?;
        let (value, port) = with_port(value)?;
        let plain = |text: &str, more: &str| {
            let good = |next: char| next.is_ascii_alphanumeric() || more.contains(next);
            !text.is_empty() && text.chars().all(good)
        };
        let good = plain(namespace, "-") && plain(label, "-_./") && plain(&value, "-_.");
        return good.then(|| NameServer {
            peer: Peer::Pods {
                namespace: namespace.to_owned(),
                label: label.to_owned(),
                value,
            },
            port,
        });
    }
    let (address, bits) = text.split_once('/')?;
    let (bits, port) = with_port(bits)?;
    let longest = match address.parse().ok()? {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    let bits: u8 = bits.parse().ok()?;
    (bits <= longest).then(|| NameServer {
        peer: Peer::Addresses(format!("{address}/{bits}")),
        port,
    })
}

impl fmt::Display for NameServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.peer {
            Peer::Pods {
                namespace,
                label,
                value,
            } => write!(formatter, "{namespace}/{label}={value}")?,
            Peer::Addresses(cidr) => formatter.write_str(cidr)?,
        }
        match self.port {
            DNS => Ok(()),
            port => write!(formatter, ":{port}"),
        }
    }
}

impl TryFrom<String> for NameServer {
    type Error = NameServerError;

    fn try_from(text: String) -> Result<Self, NameServerError> {
        text.parse()
    }
}

impl From<NameServer> for String {
    fn from(server: NameServer) -> Self {
        server.to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn name_servers_are_read_as_they_are_written() {
        for text in [
            "kube-system/k8s-app=kube-dns",
            "openshift-dns/dns.operator.openshift.io/daemonset-dns=default:5353",
            "169.254.20.10/32",
            "10.96.0.10/32:1053",
            "fd00::a/128",
            "fd00::a/128:5353",
        ] {
            let server: NameServer = text.parse().unwrap();
            assert_eq!(server.to_string(), text);
            let sealed = serde_json::to_value(&server).unwrap();
            assert_eq!(sealed, json!(text));
            assert_eq!(
                serde_json::from_value::<NameServer>(sealed).unwrap(),
                server
            );
        }
        assert_eq!(
            NameServer::usual().to_string(),
            "kube-system/k8s-app=kube-dns"
        );
    }

    #[test]
    fn nonsense_is_no_name_server() {
        for text in [
            "",
            "/",
            "a",
            "a=b",
            "/a=b",
            "a/=b",
            "a/b=",
            "a/b=c:0",
            "a/b=c:x",
            "a b/c=d",
            "a/b=c d",
            "10.0.0.1",
            "10.0.0.1/33",
            "10.0.0/8",
            "::/129",
            "10.0.0.1/8:99999",
            "0.0.0.0/-1",
            "*/k8s-app=kube-dns",
        ] {
            assert!(text.parse::<NameServer>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_rule_names_who_is_asked_and_the_port() {
        for (text, to, port) in [
            (
                "kube-system/k8s-app=kube-dns",
                json!({
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                }),
                53,
            ),
            (
                "169.254.20.10/32:54",
                json!({"ipBlock": {"cidr": "169.254.20.10/32"}}),
                54,
            ),
        ] {
            let rule = text.parse::<NameServer>().unwrap().rule();
            let expected = json!({
                "to": [to],
                "ports": [{"port": port, "protocol": "UDP"}, {"port": port, "protocol": "TCP"}],
            });
            assert_eq!(serde_json::to_value(rule).unwrap(), expected);
        }
    }
}
