//! The scaffold of a policy with the grants that a template requires, for its author to edit, and the right of the
//! broker to read the Secrets of a policy.

use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::core::ObjectMeta;
use oz_api::harness::{
    BrokerPolicy, BrokerPolicySpec, CredentialGrant, DeliveryMode, EgressGrant, EgressNeed, Grants,
    Header, Hosts, Provider, ProviderKind, ProxyInjected, SecretKey, has_port_in,
};

use super::policy::Matching;
use super::provider::{self, ANTHROPIC_HOST, CREDENTIAL_PORT, read_by_brokers};
use super::requires::gaps;
use super::template::Resolved;

/// The host in a scaffolded policy if the template names none.
const PLACEHOLDER: &str = "api.example.com";
/// The id of an app and of its installation in a scaffolded policy.
const PLACEHOLDER_ID: &str = "123456";
/// The maximum length of the name of an object.
const MAX_NAME: usize = 253;

/// The account that may read the Secrets of a policy: the broker's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The namespace of oz.
    pub namespace: String,
    /// The name of the service account.
    pub name: String,
}

/// Creates a policy with all grants that a template requires: each credential from a key of a Secret with its name,
/// by this provider, or without one by the provider of its name. Values that the template does not contain are
/// placeholders, see [`placeholders`]. Admission accepts the policy unchanged.
#[must_use]
pub fn scaffold(
    name: &str,
    template: &str,
    resolved: &Resolved,
    provider: Option<ProviderKind>,
) -> BrokerPolicy {
    let kinds = resolved.credentials.iter();
    let kinds = kinds.map(|credential| provider.unwrap_or_else(|| usual_provider(credential)));
    let kinds: Vec<ProviderKind> = kinds.collect();
    let is_for_anthropic = |kind: &ProviderKind| *kind == ProviderKind::AnthropicAPI;
    let mut needs = resolved.egress.clone();
    let mut hosts = hosts(&needs);
    if kinds.iter().any(is_for_anthropic) {
        if !hosts.iter().any(|host| is_anthropic(host)) {
            needs.push(over_tls(ANTHROPIC_HOST));
        }
        // No other credential is for this host, which is the default of the provider.
        hosts.retain(|host| !is_anthropic(host));
    }
    if hosts.is_empty() && !kinds.iter().all(is_for_anthropic) {
        needs.push(over_tls(PLACEHOLDER));
        hosts.push(PLACEHOLDER.to_owned());
    }
    let credentials = resolved.credentials.iter().zip(kinds);
    let credentials = credentials.map(|(credential, kind)| CredentialGrant {
        name: credential.clone(),
        provider: by(kind, credential, &hosts),
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
    // `BrokerPolicy::new` copies the annotations of the definition.
    BrokerPolicy {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// Returns the provider of the service that a credential's name stands for, or else the provider of any value.
fn usual_provider(credential: &str) -> ProviderKind {
    match credential {
        "ANTHROPIC_API_KEY" => ProviderKind::AnthropicAPI,
        _ => ProviderKind::UserSuppliedSecret,
    }
}

fn is_anthropic(host: &str) -> bool {
    let hosts = host.parse::<Hosts>();
    hosts.is_ok_and(|hosts| hosts.matches(ANTHROPIC_HOST))
}

fn over_tls(host: &str) -> EgressNeed {
    EgressNeed {
        host: host.to_owned(),
        ports: vec![CREDENTIAL_PORT],
    }
}

/// Returns the hosts to which a credential can be sent, each once.
fn hosts(needs: &[EgressNeed]) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for need in needs {
        if has_port_in(&need.ports, CREDENTIAL_PORT) && !hosts.contains(&need.host) {
            hosts.push(need.host.clone());
        }
    }
    hosts
}

/// Returns the placeholders of a scaffolded policy, by field.
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
        let hosts = provider::hosts(provider);
        if hosts.len() > 1 {
            found.push(format!(
                "credential {}: keep only the hosts that may receive it: {}",
                grant.name,
                hosts.join(", ")
            ));
        }
    }
    if grants.egress.iter().any(|grant| grant.host == PLACEHOLDER) {
        found.push(format!(
            "egress: {PLACEHOLDER} stands for the hosts of the credentials, which the template does not name"
        ));
    }
    found
}

/// Checks whether this policy alone grants all requirements of a template.
#[must_use]
pub fn suffices(policy: &BrokerPolicy, template: &str, resolved: &Resolved) -> bool {
    gaps(resolved, &Matching::from_policies([policy], template)).is_empty()
}

/// Returns the Role with the right to read the Secrets of a policy, and its RoleBinding to the account of the broker;
/// `None` if the broker reads no Secret for the policy. Both have the name of the policy with `-secrets`, and its
/// namespace.
#[must_use]
pub fn secret_access(policy: &BrokerPolicy, broker: &Account) -> Option<(Role, RoleBinding)> {
    let secrets = read_by_brokers(policy);
    if secrets.is_empty() {
        return None;
    }
    let name = role_name(policy.metadata.name.as_deref()?);
    let metadata = ObjectMeta {
        name: Some(name.clone()),
        namespace: policy.metadata.namespace.clone(),
        ..ObjectMeta::default()
    };
    let role = Role {
        metadata: metadata.clone(),
        rules: Some(vec![PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["secrets".to_owned()]),
            resource_names: Some(secrets.into_iter().collect()),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        }]),
    };
    let binding = RoleBinding {
        metadata,
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name,
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: broker.name.clone(),
            namespace: Some(broker.namespace.clone()),
            ..Subject::default()
        }]),
    };
    Some((role, binding))
}

/// Returns the name of the Role for the Secrets of a policy with this name.
fn role_name(policy: &str) -> String {
    const SUFFIX: &str = "-secrets";
    let end = policy.floor_char_boundary(MAX_NAME - SUFFIX.len());
    let stem = policy.get(..end).unwrap_or_default();
    format!("{}{SUFFIX}", stem.trim_end_matches(['-', '.']))
}

/// Returns the provider of one credential.
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
            ProviderKind::UserSuppliedSecret | ProviderKind::AnthropicAPI => Vec::new(),
            ProviderKind::GitHubApp | ProviderKind::PATPool => hosts.to_vec(),
        },
        delivery_mode: (kind == ProviderKind::UserSuppliedSecret).then_some(DeliveryMode {
            proxy_injected: Some(injected),
            in_container: None,
        }),
        ..Provider::default()
    }
}

/// Returns the glob that matches only this name.
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

/// Returns a valid name of a Secret that resembles this one.
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
