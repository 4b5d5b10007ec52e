//! Whether policies grant what a template requires; what is lacking, and the policy that would grant it.

use std::fmt;

use jiff::Timestamp;

use super::host::{Hosts, is_any_port};
use super::policy::Matching;
use super::template::Resolved;
use crate::api::harness::{
    BrokerPolicy, BrokerPolicySpec, CredentialGrant, DeliveryMode, EgressGrant, EgressNeed, Grants,
    Header, Provider, ProviderKind, ProxyInjected, SecretKey,
};

/// Stands in a scaffolded policy for a host that the template does not name.
const PLACEHOLDER: &str = "api.example.com";

/// What a template requires and no policy grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Names of credentials.
    pub credentials: Vec<String>,
    /// Hosts, each with the ports that are lacking; none for any.
    pub egress: Vec<EgressNeed>,
}

/// Why a run cannot be admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortfall {
    /// There are policies for its template, and the discovery of each has expired.
    #[error(
        "the egressDiscovery of every BrokerPolicy for template {template} has expired ({policies}): turn what \
         it found into grants (ozctl policy suggest --all) and remove it"
    )]
    Expired {
        /// The template.
        template: String,
        /// The policies, one after the other.
        policies: String,
    },
    /// Something is not granted.
    #[error(
        "no BrokerPolicy of namespace {namespace} grants what template {template} requires: {gaps}; \
         ozctl policy scaffold {template} -n {namespace} prints a policy that does"
    )]
    Lacking {
        /// The template.
        template: String,
        /// The namespace of the run.
        namespace: String,
        /// What is lacking.
        gaps: Gaps,
    },
}

/// What `requires` of a template is not granted by these policies.
#[must_use]
pub fn gaps(template: &Resolved, policies: &Matching<'_>) -> Gaps {
    let lacks = |name: &&String| policies.credential(name).is_none();
    let credentials = template.credentials.iter().filter(lacks).cloned().collect();
    let egress = template.egress.iter().filter_map(|need| {
        let Ok(hosts) = need.host.parse::<Hosts>() else {
            return Some(need.clone());
        };
        let covers = |port: i32| policies.find_egress(|granted| granted.cover(&hosts), port);
        if is_any_port(&need.ports) {
            return covers(0).is_none().then(|| need.clone());
        }
        let ports = need.ports.iter().filter(|&&port| covers(port).is_none());
        let ports: Vec<i32> = ports.copied().collect();
        (!ports.is_empty()).then(|| EgressNeed {
            host: need.host.clone(),
            ports,
        })
    });
    let mut egress: Vec<EgressNeed> = egress.collect();
    let mut seen: Vec<EgressNeed> = Vec::new();
    egress.retain(|need| {
        let is_new = !seen.contains(need);
        seen.push(need.clone());
        is_new
    });
    Gaps {
        credentials,
        egress,
    }
}

/// Whether a run of a template can be admitted at `now`; `policies` are those that speak for the template.
///
/// # Errors
/// What is lacking.
pub fn admitted(
    name: &str,
    namespace: &str,
    template: &Resolved,
    policies: &Matching<'_>,
    now: Timestamp,
) -> Result<(), Shortfall> {
    let live = policies.unexpired(now);
    let gaps = gaps(template, &live);
    if gaps.is_empty() {
        return Ok(());
    }
    if live.is_empty() && !policies.is_empty() {
        let names = policies
            .iter()
            .filter_map(|policy| policy.metadata.name.clone());
        return Err(Shortfall::Expired {
            template: name.to_owned(),
            policies: names.collect::<Vec<String>>().join(", "),
        });
    }
    Err(Shortfall::Lacking {
        template: name.to_owned(),
        namespace: namespace.to_owned(),
        gaps,
    })
}

/// A policy that grants all that a template requires, for its author to look at: each credential from a key of
/// a Secret of its own name, put into requests by the proxy.
#[must_use]
pub fn scaffold(name: &str, template: &str, resolved: &Resolved) -> BrokerPolicy {
    let mut needs = resolved.egress.clone();
    if needs.is_empty() && !resolved.credentials.is_empty() {
        needs.push(EgressNeed {
            host: PLACEHOLDER.to_owned(),
            ports: vec![443],
        });
    }
    let hosts: Vec<String> = needs.iter().map(|need| need.host.clone()).collect();
    let credentials = resolved
        .credentials
        .iter()
        .map(|credential| CredentialGrant {
            name: credential.clone(),
            provider: Provider {
                kind: ProviderKind::UserSuppliedSecret,
                secret_ref: Some(SecretKey {
                    name: secret_name(credential),
                    key: "value".to_owned(),
                }),
                delivery_mode: Some(DeliveryMode {
                    proxy_injected: Some(ProxyInjected {
                        hosts: hosts.clone(),
                        header: Some(Header {
                            name: "Authorization".to_owned(),
                            value_prefix: Some("Bearer ".to_owned()),
                        }),
                        ..ProxyInjected::default()
                    }),
                    in_container: None,
                }),
                ..Provider::default()
            },
        });
    let egress = needs.iter().map(|need| EgressGrant {
        host: need.host.clone(),
        ports: need.ports.clone(),
    });
    let spec = BrokerPolicySpec {
        applies_to_templates: vec![literal(template)],
        grants: Grants {
            credentials: credentials.collect(),
            egress: egress.collect(),
            ..Grants::default()
        },
        ..BrokerPolicySpec::default()
    };
    BrokerPolicy::new(name, spec)
}

/// A glob for this name alone.
fn literal(name: &str) -> String {
    let special = |next: char| matches!(next, '*' | '?' | '[' | '\\');
    let mut glob = String::new();
    for next in name.chars() {
        if special(next) {
            glob.push('\\');
        }
        glob.push(next);
    }
    glob
}

/// A name that a Secret may have, like this one.
fn secret_name(credential: &str) -> String {
    let lower = credential.to_ascii_lowercase();
    let name: String = lower
        .chars()
        .map(|next| {
            if next.is_ascii_alphanumeric() {
                next
            } else {
                '-'
            }
        })
        .collect();
    match name.trim_matches('-') {
        "" => "credential".to_owned(),
        name => name.to_owned(),
    }
}

impl Gaps {
    /// Whether nothing is lacking.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.credentials.is_empty() && self.egress.is_empty()
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credentials = self
            .credentials
            .iter()
            .map(|name| format!("credential {name}"));
        let egress = self.egress.iter().map(|need| {
            let ports: Vec<String> = need.ports.iter().map(ToString::to_string).collect();
            match is_any_port(&need.ports) {
                true => format!("egress to {} on any port", need.host),
                false => format!("egress to {}:{}", need.host, ports.join(",")),
            }
        });
        let all: Vec<String> = credentials.chain(egress).collect();
        write!(formatter, "{}", all.join("; "))
    }
}
