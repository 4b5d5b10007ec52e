//! The policy that would grant what a template requires, for its author to look at.

use oz_api::harness::{
    BrokerPolicy, BrokerPolicySpec, CredentialGrant, DeliveryMode, EgressGrant, EgressNeed, Grants,
    Header, Provider, ProviderKind, ProxyInjected, SecretKey,
};

use super::policy::Matching;
use super::requires::gaps;
use super::template::Resolved;

/// Stands in a scaffolded policy for a host that the template does not name.
const PLACEHOLDER: &str = "api.example.com";
/// Stands in one for the id of an app, and of its installation.
const PLACEHOLDER_ID: &str = "123456";

/// A policy that grants all that a template requires: each credential from a key of a Secret of its own name, by
/// this provider. What the template does not say is a placeholder, see [`placeholders`]. Admission takes it as it
/// is.
#[must_use]
pub fn scaffold(
    name: &str,
    template: &str,
    resolved: &Resolved,
    provider: ProviderKind,
) -> BrokerPolicy {
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
            provider: by(provider, credential, &hosts),
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

/// What of a scaffolded policy its author has to replace, field by field.
#[must_use]
pub fn placeholders(policy: &BrokerPolicy) -> Vec<String> {
    let grants = &policy.spec.grants;
    let mut found = Vec::new();
    for grant in &grants.credentials {
        let provider = &grant.provider;
        if let Some(secret) = &provider.secret_ref {
            found.push(format!(
                "credential {}: Secret {}, key {}, must exist",
                grant.name, secret.name, secret.key
            ));
        }
        if provider.kind == ProviderKind::GitHubApp {
            found.push(format!(
                "credential {}: appId and installationId {PLACEHOLDER_ID} stand for yours",
                grant.name
            ));
        }
    }
    if grants.egress.iter().any(|grant| grant.host == PLACEHOLDER) {
        found.push(format!(
            "egress: {PLACEHOLDER} stands for the hosts that the credentials are for, the template names none"
        ));
    }
    found
}

/// Whether nothing that the template requires is lacking with this policy alone.
#[must_use]
pub fn suffices(policy: &BrokerPolicy, template: &str, resolved: &Resolved) -> bool {
    gaps(resolved, &Matching::of([policy], template)).is_empty()
}

/// Where one credential comes from.
fn by(kind: ProviderKind, credential: &str, hosts: &[String]) -> Provider {
    let is_app = kind == ProviderKind::GitHubApp;
    let id = || is_app.then(|| PLACEHOLDER_ID.to_owned());
    let key = match kind {
        ProviderKind::UserSuppliedSecret => "value",
        ProviderKind::AnthropicAPI => "api-key",
        ProviderKind::GitHubApp => "private-key",
        ProviderKind::PATPool => "pool",
    };
    let injected = ProxyInjected {
        hosts: hosts.to_vec(),
        header: Some(Header {
            name: "Authorization".to_owned(),
            value_prefix: Some("Bearer ".to_owned()),
        }),
        ..ProxyInjected::default()
    };
    Provider {
        kind,
        secret_ref: Some(SecretKey {
            name: secret_name(credential),
            key: key.to_owned(),
        }),
        app_id: id(),
        installation_id: id(),
        hosts: match kind {
            ProviderKind::UserSuppliedSecret => Vec::new(),
            _ => hosts.to_vec(),
        },
        delivery_mode: (kind == ProviderKind::UserSuppliedSecret).then_some(DeliveryMode {
            proxy_injected: Some(injected),
            in_container: None,
        }),
        ..Provider::default()
    }
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
