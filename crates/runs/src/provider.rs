//! The providers of credentials: those that runs get, the hosts to which a credential is sent, and the Secrets that
//! brokers read.

use std::collections::BTreeSet;

use oz_api::harness::{BrokerPolicy, Provider, ProviderKind};

/// The host of a credential for Anthropic's API, if the policy names none.
pub const ANTHROPIC_HOST: &str = "api.anthropic.com";
/// The hosts of a credential for GitHub, if the policy names none.
const GITHUB_HOSTS: [&str; 2] = ["github.com", "api.github.com"];
/// The port for which a credential requires an egress grant: the proxy sends credentials over TLS only.
pub const CREDENTIAL_PORT: i32 = 443;

/// Checks whether runs get credentials of a provider.
#[must_use]
pub const fn is_served(kind: ProviderKind) -> bool {
    matches!(
        kind,
        ProviderKind::UserSuppliedSecret | ProviderKind::AnthropicAPI
    )
}

/// Returns the hosts to which the proxy sends a credential: those of the policy as it writes them, or else those of the
/// provider; none if the kubelet delivers it.
#[must_use]
pub fn hosts(provider: &Provider) -> Vec<&str> {
    let hosts = match provider.kind {
        ProviderKind::UserSuppliedSecret => {
            let delivery = provider.delivery_mode.as_ref();
            let injected = delivery.and_then(|delivery| delivery.proxy_injected.as_ref());
            injected.map(|injected| &injected.hosts)
        }
        kind if provider.hosts.is_empty() => return default_hosts(kind).to_vec(),
        _ => Some(&provider.hosts),
    };
    hosts.into_iter().flatten().map(String::as_str).collect()
}

/// Returns the hosts of the service to which the credentials of a provider belong.
const fn default_hosts(kind: ProviderKind) -> &'static [&'static str] {
    match kind {
        ProviderKind::UserSuppliedSecret => &[],
        ProviderKind::AnthropicAPI => &[ANTHROPIC_HOST],
        ProviderKind::GitHubApp | ProviderKind::PATPool => &GITHUB_HOSTS,
    }
}

/// Returns the names of the Secrets that brokers read for a policy: those of credentials that the proxy injects. The
/// kubelet mounts those of other credentials.
#[must_use]
pub fn read_by_brokers(policy: &BrokerPolicy) -> BTreeSet<String> {
    let providers = policy.spec.grants.credentials.iter();
    let injected = providers
        .map(|grant| &grant.provider)
        .filter(|it| is_injected(it));
    let secrets = injected.filter_map(|provider| provider.secret_ref.as_ref());
    secrets.map(|secret| secret.name.clone()).collect()
}

fn is_injected(provider: &Provider) -> bool {
    let delivery = provider.delivery_mode.as_ref();
    match provider.kind {
        ProviderKind::AnthropicAPI => true,
        ProviderKind::UserSuppliedSecret => {
            delivery.is_some_and(|delivery| delivery.proxy_injected.is_some())
        }
        // Brokers do not lend these yet.
        ProviderKind::GitHubApp | ProviderKind::PATPool => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn provider_without_hosts_has_those_of_its_service() {
        let injected = json!({"proxyInjected": {"hosts": ["git.example.com"], "header": {"name": "Authorization"}}});
        for (provider, expected) in [
            (json!({"kind": "AnthropicAPI"}), &["api.anthropic.com"][..]),
            (
                json!({"kind": "GitHubApp"}),
                &["github.com", "api.github.com"],
            ),
            (
                json!({"kind": "PATPool"}),
                &["github.com", "api.github.com"],
            ),
            (
                json!({"kind": "PATPool", "hosts": ["git.example.com"]}),
                &["git.example.com"],
            ),
            (
                json!({"kind": "UserSuppliedSecret", "deliveryMode": injected}),
                &["git.example.com"],
            ),
            (json!({"kind": "UserSuppliedSecret"}), &[]),
        ] {
            let provider: Provider = serde_json::from_value(provider).unwrap();
            assert_eq!(hosts(&provider), expected, "{provider:?}");
        }
    }
}
