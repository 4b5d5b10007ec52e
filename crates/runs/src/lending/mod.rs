//! The credentials and hosts that a run may use at this moment: the decision that the operator sealed into the Job of
//! the run ([`Terms`]), and the broker policies that match its template. A policy counts only if the webhook stamped
//! its spec ([`Lenders`]); the status of a policy or of a run never counts. Admission and the broker match policies by
//! the same code ([`Matching`]). The explicit grants of a policy stay valid for live runs after its discovery has expired.

mod egress;
mod secret;
mod terms;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use oz_api::Requester;
use oz_api::encode;
use oz_api::harness::interception::placeholder;
use oz_api::harness::wire::{CredentialPlace, HostGrant, InjectedCredential, RunGrants};
use oz_api::harness::{
    BrokerPolicy, CredentialGrant, Hosts, ProviderKind, ProxyInjected, SecretKey, is_any_port,
};

use crate::policy::{Matching, policy_name};
use crate::policy_stamp;
use crate::provider::{self, CREDENTIAL_PORT};

pub use egress::{cleaned, merged, summed};
pub use secret::{SecretRefusal, value, version};
pub use terms::{Terms, TermsError};

/// A broker policy, and the authors of its spec if its stamp is valid.
#[derive(Clone, Debug)]
pub struct Stamped<'a> {
    /// The policy.
    pub policy: &'a BrokerPolicy,
    /// The authors; or the reason why the stamp is not valid.
    pub authors: Result<&'a [Requester], &'a str>,
}

/// The policies that match the template of a run.
#[derive(Clone, Debug)]
pub struct Lenders<'a> {
    verified: Matching<'a>,
    /// Policies without a valid stamp. They grant nothing; messages name them.
    unverified: Matching<'a>,
    policies: Vec<Stamped<'a>>,
}

/// A credential that a policy grants to a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Lending<'a> {
    /// The policy: the first by name.
    pub policy: &'a BrokerPolicy,
    /// The authors of the policy's spec.
    pub authors: &'a [Requester],
    /// The Secret of the run's namespace, and its key.
    pub secret: &'a SecretKey,
    /// The hosts, as the policy writes them, to which the proxy may send it.
    pub hosts: Vec<&'a str>,
    /// The place in requests.
    pub place: CredentialPlace,
}

/// The reason for which a credential is not lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::IntoStaticStr)]
pub enum RefusalReason {
    /// The template did not require it when the run began.
    CredentialNotRequired,
    /// No policy grants it.
    CredentialNotGranted,
    /// A policy grants it, but the webhook did not stamp the policy's spec.
    PolicyNotVerified,
    /// The provider is not served.
    ProviderNotServed,
    /// The kubelet delivers it to the container.
    DeliveredInContainer,
    /// The policy that grants it is incomplete.
    PolicyInvalid,
    /// The host is not among the hosts of the credential, or no policy grants the host on port 443.
    HostNotGranted,
}

/// The refusal of a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// The failure and the next step.
    pub message: String,
}

impl Refusal {
    fn new(reason: RefusalReason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }
}

impl<'a> Lenders<'a> {
    /// Returns those of `policies`, which are all of one namespace, that match the template.
    #[must_use]
    pub fn from_policies(policies: impl IntoIterator<Item = Stamped<'a>>, template: &str) -> Self {
        let policies: Vec<Stamped<'a>> = policies.into_iter().collect();
        let (verified, unverified): (Vec<_>, Vec<_>) =
            policies.iter().partition(|stamped| stamped.authors.is_ok());
        let matching = |all: Vec<&Stamped<'a>>| {
            Matching::from_policies(all.iter().map(|it| it.policy), template)
        };
        Self {
            verified: matching(verified),
            unverified: matching(unverified),
            policies,
        }
    }

    /// Returns the Secrets of the credentials that the run may use, each once.
    pub fn secrets(&self, terms: &Terms) -> BTreeSet<&'a str> {
        let required = terms.credentials.iter();
        let granted = required.filter_map(|name| self.find(terms, name).ok());
        granted
            .map(|granted| granted.secret.name.as_str())
            .collect()
    }

    /// Returns the grants of a run. `versions` returns the version of a Secret by its name; `certificates` are the
    /// additional authorities (PEM).
    pub fn grants(
        &self,
        terms: &Terms,
        versions: impl Fn(&str) -> String,
        certificates: &str,
    ) -> RunGrants {
        let required: BTreeSet<&String> = terms.credentials.iter().collect();
        let credentials = required.into_iter().filter_map(|name| {
            let granted = self.find(terms, name).ok()?;
            Some(InjectedCredential {
                name: name.clone(),
                placeholder: placeholder(&terms.run.uid, name),
                hosts: granted.hosts.iter().map(ToString::to_string).collect(),
                place: granted.place,
                version: versions(&granted.secret.name),
            })
        });
        let mut grants = RunGrants {
            digest: String::new(),
            hosts: self.hosts(),
            credentials: credentials.collect(),
            certificates: certificates.to_owned(),
        };
        grants.digest = digest(&grants);
        grants
    }

    /// Returns the credential of this name for requests to `host`.
    ///
    /// # Errors
    /// The reason for which it is not lent.
    pub fn lend(&self, terms: &Terms, name: &str, host: &str) -> Result<Lending<'a>, Refusal> {
        let lending = self.find(terms, name)?;
        let is_granted = lending
            .hosts
            .iter()
            .filter_map(|hosts| hosts.parse::<Hosts>().ok())
            .any(|hosts| hosts.matches(host));
        if is_granted {
            return Ok(lending);
        }
        Err(Refusal::new(
            RefusalReason::HostNotGranted,
            format!(
                "BrokerPolicy {}/{} grants credential {name} for {}, and not for {host}",
                terms.run.namespace,
                policy_name(lending.policy),
                lending.hosts.join(", ")
            ),
        ))
    }

    /// Returns the hosts that any verified policy grants, each once with all of its ports, sorted.
    fn hosts(&self) -> Vec<HostGrant> {
        // `None` for any port.
        let mut hosts: BTreeMap<String, Option<BTreeSet<u16>>> = BTreeMap::new();
        for grant in self.verified.iter().flat_map(|it| &it.spec.grants.egress) {
            let Ok(host) = grant.host.parse::<Hosts>() else {
                continue;
            };
            let ports: BTreeSet<u16> = grant
                .ports
                .iter()
                .filter_map(|port| u16::try_from(*port).ok())
                .collect();
            let is_any = is_any_port(&grant.ports);
            if !is_any && ports.is_empty() {
                // A list of ports that are all invalid grants none, whereas an empty list grants any.
                continue;
            }
            let known = hosts
                .entry(host.to_string())
                .or_insert_with(|| Some(BTreeSet::new()));
            match known {
                Some(known) if !is_any => known.extend(ports),
                _ => *known = None,
            }
        }
        let hosts = hosts.into_iter().map(|(host, ports)| HostGrant {
            host,
            ports: ports.into_iter().flatten().collect(),
        });
        hosts.collect()
    }

    /// Returns the credential of this name with the hosts that egress grants cover.
    fn find(&self, terms: &Terms, name: &str) -> Result<Lending<'a>, Refusal> {
        let namespace = &terms.run.namespace;
        if !terms.credentials.iter().any(|required| required == name) {
            return Err(Refusal::new(
                RefusalReason::CredentialNotRequired,
                format!(
                    "the template {} of harness run {namespace}/{} did not require credential {name} when the run \
                     began",
                    terms.template, terms.run.name
                ),
            ));
        }
        let Some((policy, grant)) = self.verified.credential(name) else {
            return Err(self.not_granted(terms, name));
        };
        let authors = self.stamp(policy).and_then(Result::ok).unwrap_or_default();
        let (secret, hosts, place) = delivered(namespace, policy, grant)?;
        let hosts: Vec<&str> = hosts.into_iter().filter(|host| self.covers(host)).collect();
        if hosts.is_empty() {
            return Err(Refusal::new(
                RefusalReason::HostNotGranted,
                format!(
                    "no verified BrokerPolicy of namespace {namespace} grants any host of credential {name} on port \
                     {CREDENTIAL_PORT}: add the hosts to spec.grants.egress of BrokerPolicy {}",
                    policy_name(policy)
                ),
            ));
        }
        Ok(Lending {
            policy,
            authors,
            secret,
            hosts,
            place,
        })
    }

    /// Returns the authors of one of the policies, or the reason why its stamp is not valid.
    fn stamp(&self, policy: &BrokerPolicy) -> Option<Result<&'a [Requester], &'a str>> {
        let mut policies = self.policies.iter();
        let stamped = policies.find(|stamped| std::ptr::eq(stamped.policy, policy))?;
        Some(stamped.authors)
    }

    fn covers(&self, host: &str) -> bool {
        let hosts = host.parse::<Hosts>();
        hosts.is_ok_and(|hosts| self.verified.covers(&hosts, CREDENTIAL_PORT))
    }

    fn not_granted(&self, terms: &Terms, name: &str) -> Refusal {
        let namespace = &terms.run.namespace;
        if let Some((policy, _)) = self.unverified.credential(name) {
            let why = self.stamp(policy).and_then(Result::err).unwrap_or_default();
            return Refusal::new(
                RefusalReason::PolicyNotVerified,
                format!(
                    "BrokerPolicy {namespace}/{} grants credential {name}, but its stamp is not valid ({why}): {}",
                    policy_name(policy),
                    policy_stamp::create_again(policy_name(policy), namespace)
                ),
            );
        }
        Refusal::new(
            RefusalReason::CredentialNotGranted,
            format!(
                "no BrokerPolicy of namespace {namespace} for template {} grants credential {name}: ozctl run policy \
                 scaffold {} -n {namespace} prints a policy that does",
                terms.template, terms.template
            ),
        )
    }
}

/// Returns the Secret, the hosts and the place of a credential.
fn delivered<'a>(
    namespace: &str,
    policy: &'a BrokerPolicy,
    grant: &'a CredentialGrant,
) -> Result<(&'a SecretKey, Vec<&'a str>, CredentialPlace), Refusal> {
    let (provider, name) = (&grant.provider, &grant.name);
    let invalid = |what: &str| {
        let policy = policy_name(policy);
        let message =
            format!("BrokerPolicy {namespace}/{policy} has no {what} for credential {name}");
        Refusal::new(RefusalReason::PolicyInvalid, message)
    };
    let place = match provider.kind {
        ProviderKind::UserSuppliedSecret => {
            let delivery = provider.delivery_mode.as_ref();
            let delivery = delivery.ok_or_else(|| invalid("deliveryMode"))?;
            let Some(injected) = &delivery.proxy_injected else {
                return Err(Refusal::new(
                    RefusalReason::DeliveredInContainer,
                    format!(
                        "the kubelet delivers credential {name} to the container, not the broker"
                    ),
                ));
            };
            place(injected).ok_or_else(|| invalid("header, queryParam or basicAuth"))?
        }
        ProviderKind::AnthropicAPI => CredentialPlace::Anthropic,
        kind @ (ProviderKind::GitHubApp | ProviderKind::PATPool) => {
            return Err(Refusal::new(
                RefusalReason::ProviderNotServed,
                format!(
                    "credential {name} of BrokerPolicy {namespace}/{} is of provider {kind}, which this release does \
                     not serve: use UserSuppliedSecret or AnthropicAPI",
                    policy_name(policy)
                ),
            ));
        }
    };
    let secret = provider.secret_ref.as_ref();
    let secret = secret.ok_or_else(|| invalid("secretRef"))?;
    Ok((secret, provider::hosts(provider), place))
}

fn place(injected: &ProxyInjected) -> Option<CredentialPlace> {
    match (
        &injected.header,
        &injected.query_param,
        &injected.basic_auth,
    ) {
        (Some(header), None, None) => Some(CredentialPlace::Header {
            name: header.name.clone(),
            prefix: header.value_prefix.clone().unwrap_or_default(),
        }),
        (None, Some(query), None) => Some(CredentialPlace::Query {
            name: query.name.clone(),
        }),
        (None, None, Some(basic)) => Some(CredentialPlace::Basic {
            username: basic.username.clone(),
        }),
        _ => None,
    }
}

/// Returns the digest of grants with an empty field `digest`. It consists of hexadecimal digits, as a query requires.
fn digest(grants: &RunGrants) -> String {
    let digest = encode::digest(grants);
    digest.trim_start_matches("sha256:").to_owned()
}
