//! The grants of verified broker policies to one run: when it begins, and while it lasts.

use jiff::Timestamp;
use oz_api::harness::{
    BrokerPolicy, CredentialGrant, DeliveryName, EgressNeed, Hosts, Provider, ProviderKind,
    RunCredential,
};
use oz_core::access::seal::Keys;
use oz_core::access::stamp::StampError;

use super::decided::Decided;
use crate::credential::DecidedCredential;
use crate::definitions::is_unreadable;
use crate::policy::{Matching, policy_name};
use crate::provider::{self, CREDENTIAL_PORT, is_served};
use crate::template::Resolved;
use crate::{policy_stamp, requires};

/// The reason for which the grants of policies do not apply to a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotGranted {
    /// A policy is not stamped for its spec. A change of a policy that any user may have written makes no author
    /// responsible for the rest, so that it is created again.
    #[error(
        "{} not verified, and access that only {} is not granted: oz's webhook did not stamp the \
         current spec ({reason}); check the content and create it again: kubectl get brokerpolicy \
         {} -n {namespace} -o yaml | kubectl replace --force -f -",
        are(policies),
        grant(policies),
        policies.join(" ")
    )]
    NotVerified {
        policies: Vec<String>,
        namespace: String,
        reason: &'static str,
    },
    /// No policy can be verified yet.
    #[error(
        "{} not verified yet: oz's webhook has not published its keys; the run begins when it has",
        are(policies)
    )]
    KeysUnknown { policies: Vec<String> },
    /// No part of oz serves the provider yet.
    #[error(
        "credential {name} of BrokerPolicy {policy} has the provider {provider}, which is not served yet: put a token \
         into a Secret, and grant it with provider UserSuppliedSecret and deliveryMode.proxyInjected"
    )]
    ProviderNotServed {
        name: String,
        policy: String,
        provider: ProviderKind,
    },
    /// The policy was stored without the rules of its kind.
    #[error("credential {name} of BrokerPolicy {policy} has no {field}: set it in the policy")]
    Incomplete {
        name: String,
        policy: String,
        field: &'static str,
    },
    /// Brokers may not read the Secret.
    #[error(
        "brokers may not read Secret {secret}, with credential {name} of BrokerPolicy {policy}: run \
         ozctl run policy scaffold {template} --role -n {namespace} | kubectl apply -f -"
    )]
    SecretNotReadable {
        name: String,
        policy: String,
        secret: String,
        template: String,
        namespace: String,
    },
}

impl NotGranted {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NotVerified { .. } | Self::KeysUnknown { .. } => "PolicyNotVerified",
            Self::ProviderNotServed { .. } => "ProviderNotServed",
            Self::Incomplete { .. } => "PolicyInvalid",
            Self::SecretNotReadable { .. } => "SecretsNotReadable",
        }
    }

    /// Checks whether the run waits, since the same may be granted later.
    pub(super) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::NotVerified { .. } | Self::KeysUnknown { .. } | Self::SecretNotReadable { .. }
        )
    }
}

fn are(policies: &[String]) -> String {
    match policies {
        [one] => format!("BrokerPolicy {one} is"),
        all => format!("BrokerPolicies {} are", all.join(", ")),
    }
}

fn grant(policies: &[String]) -> &'static str {
    match policies {
        [_] => "it grants",
        _ => "they grant",
    }
}

/// The verified policies of a run, which alone grant credentials and hosts.
pub(super) struct Verified<'a> {
    pub(super) policies: Matching<'a>,
    /// Names of the others, and the reason for which the first of them is not verified.
    others: Vec<String>,
    reason: &'static str,
    /// Whether no policy of theirs can be verified, since the keys of the webhook are not known yet.
    is_unknown: bool,
}

impl<'a> Verified<'a> {
    pub(super) fn new(keys: &Keys, policies: &Matching<'a>) -> Self {
        let mut others = Vec::new();
        let (mut reason, mut is_unknown) = ("", false);
        let verified = policies.filter(|policy| match policy_stamp::verify(keys, policy) {
            Ok(_) => true,
            Err(error) => {
                if others.is_empty() {
                    reason = error.reason();
                }
                is_unknown |= matches!(error, StampError::Unverified(_));
                others.push(policy_name(policy).to_owned());
                false
            }
        });
        Self {
            policies: verified,
            others,
            reason,
            is_unknown,
        }
    }

    /// Returns the credentials that a run of a template gets, if these policies grant everything that it requires.
    pub(super) fn credentials(
        &self,
        name: &str,
        namespace: &str,
        template: &Resolved,
        now: Timestamp,
    ) -> Result<Vec<DecidedCredential>, NotGranted> {
        let live = self.policies.unexpired(now);
        if !requires::gaps(template, &live).is_empty() {
            let policies = self.others.clone();
            return Err(match self.is_unknown {
                true => NotGranted::KeysUnknown { policies },
                false => NotGranted::NotVerified {
                    policies,
                    namespace: namespace.to_owned(),
                    reason: self.reason,
                },
            });
        }
        // The first of all, as it is for the broker: a discovery that has expired takes nothing from a policy's grants.
        let names = template.credentials.iter();
        let granted = names.filter_map(|name| self.policies.credential(name));
        let mut all = Vec::new();
        for (policy, grant) in granted {
            let one = decided_by(policy, grant)?;
            let secret = one.secret.name.clone();
            if one.is_injected() && is_unreadable(policy, &secret) {
                return Err(NotGranted::SecretNotReadable {
                    name: one.name,
                    policy: one.policy,
                    secret,
                    template: name.to_owned(),
                    namespace: namespace.to_owned(),
                });
            }
            all.push(one);
        }
        Ok(all)
    }
}

/// Returns the credential that a grant gives.
fn decided_by(
    policy: &BrokerPolicy,
    grant: &CredentialGrant,
) -> Result<DecidedCredential, NotGranted> {
    let (name, provider) = (&grant.name, &grant.provider);
    let policy = policy_name(policy).to_owned();
    if !is_served(provider.kind) {
        return Err(NotGranted::ProviderNotServed {
            name: name.clone(),
            policy,
            provider: provider.kind,
        });
    }
    let incomplete = |field| NotGranted::Incomplete {
        name: name.clone(),
        policy: policy.clone(),
        field,
    };
    let secret = provider.secret_ref.clone();
    let secret = secret.ok_or_else(|| incomplete("provider.secretRef"))?;
    let delivery = delivery(provider).ok_or_else(|| incomplete("provider.deliveryMode"))?;
    let mode = provider.delivery_mode.as_ref();
    let accepted = mode.and_then(|mode| mode.in_container.as_ref());
    let is_injected = delivery == DeliveryName::ProxyInjected;
    Ok(DecidedCredential {
        name: name.clone(),
        provider: provider.kind,
        delivery,
        secret,
        hosts: provider::hosts(provider)
            .into_iter()
            .map(ToOwned::to_owned)
            .collect(),
        in_container_reason: accepted
            .filter(|_| !is_injected)
            .map(|it| it.reason.clone()),
        policy,
    })
}

/// Returns the place of the value of a credential; `None` if its policy does not say.
fn delivery(provider: &Provider) -> Option<DeliveryName> {
    if provider.kind == ProviderKind::AnthropicAPI {
        return Some(DeliveryName::ProxyInjected);
    }
    let mode = provider.delivery_mode.as_ref()?;
    match (&mode.proxy_injected, &mode.in_container) {
        (Some(_), None) => Some(DeliveryName::ProxyInjected),
        (None, Some(accepted)) if accepted.accepted => Some(DeliveryName::InContainer),
        _ => None,
    }
}

/// The grants of a run that has begun, as the policies are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The credentials that are still granted.
    pub credentials: Vec<RunCredential>,
    /// The credentials that are not granted any more, each with the reason.
    pub lost_credentials: Vec<String>,
    /// The hosts that are not granted any more.
    pub lost_hosts: Vec<EgressNeed>,
}

impl Granted {
    /// Compares the decision of a run with the policies of its namespace; `None` while the keys of the webhook are not known.
    pub(super) fn find<'a>(
        keys: &Keys,
        decided: &Decided,
        policies: impl IntoIterator<Item = &'a BrokerPolicy>,
    ) -> Option<Self> {
        if decided.credentials.is_empty() && decided.egress.is_empty() {
            return Some(Self::default());
        }
        let matching = Matching::from_policies(policies, decided.template_name());
        let Verified {
            policies,
            is_unknown,
            ..
        } = Verified::new(keys, &matching);
        if is_unknown {
            return None;
        }
        let mut found = Self {
            lost_hosts: requires::egress_gaps(&decided.egress, &policies),
            ..Self::default()
        };
        for credential in &decided.credentials {
            match loss(credential, &policies) {
                None => found.credentials.push(RunCredential::from(credential)),
                Some(why) => found.lost_credentials.push(why),
            }
        }
        Some(found)
    }
}

/// Returns the reason for which a run has lost a credential, or a part of it; `None` if it has it still.
fn loss(credential: &DecidedCredential, policies: &Matching<'_>) -> Option<String> {
    let name = &credential.name;
    let now = policies.credential(name);
    let now = now.and_then(|(policy, grant)| decided_by(policy, grant).ok());
    let Some(now) = now else {
        return Some(format!(
            "{name}: no verified BrokerPolicy grants it any more"
        ));
    };
    if now.delivery != credential.delivery {
        return Some(format!(
            "{name}: BrokerPolicy {} grants it with another deliveryMode",
            now.policy
        ));
    }
    let granted: Vec<Hosts> = now.hosts.iter().filter_map(|it| it.parse().ok()).collect();
    let (mut lost, mut closed) = (Vec::new(), Vec::new());
    for text in &credential.hosts {
        let Ok(host) = text.parse::<Hosts>() else {
            continue;
        };
        if !granted.iter().any(|granted| granted.cover(&host)) {
            lost.push(text.as_str());
        } else if !policies.covers(&host, CREDENTIAL_PORT) {
            closed.push(text.as_str());
        }
    }
    let (lost, closed) = (lost.join(", "), closed.join(", "));
    match (lost.is_empty(), closed.is_empty()) {
        (true, true) => None,
        (true, false) => Some(format!(
            "{name}: no verified BrokerPolicy grants {closed} on port {CREDENTIAL_PORT}"
        )),
        (false, _) => Some(format!(
            "{name}: BrokerPolicy {} does not grant it for {lost} any more",
            now.policy
        )),
    }
}

impl From<&DecidedCredential> for RunCredential {
    fn from(credential: &DecidedCredential) -> Self {
        Self {
            name: credential.name.clone(),
            provider: Some(credential.provider.to_string()),
            delivery_mode: Some(credential.delivery),
            hosts: credential.hosts.clone(),
            in_container_reason: credential.in_container_reason.clone(),
        }
    }
}
