//! Scaffolded policies, and the right of the broker to read the Secrets of a policy.

use oz_api::harness::{BrokerPolicy, ProviderKind};
use oz_runs::provider::read_by_brokers;
use oz_runs::scaffold::{Account, placeholders, scaffold, secret_access, suffices};
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;

use crate::requirements::requiring;
use crate::{now, policy};

#[test]
fn scaffolded_policy_lists_open_points() {
    let hosts = requiring(json!({
        "credentials": [{"name": "GITHUB_TOKEN"}], "egress": [{"host": "api.github.com", "ports": [443]}],
    }));
    let no_hosts = requiring(json!({"credentials": [{"name": "GITHUB_TOKEN"}]}));
    let two_hosts = requiring(json!({
        "credentials": [{"name": "GITHUB_TOKEN"}],
        "egress": [{"host": "a.example.com"}, {"host": "b.example.com", "ports": [443]}, {"host": "c.example.com", "ports": [80]}],
    }));
    let nothing = requiring(json!({}));
    for (resolved, provider, said) in [
        (
            &hosts,
            ProviderKind::PATPool,
            &["Secret github-token, key pool"][..],
        ),
        (
            &hosts,
            ProviderKind::GitHubApp,
            &["key private-key", "appId"],
        ),
        (
            &no_hosts,
            ProviderKind::UserSuppliedSecret,
            &["key value", "api.example.com"],
        ),
        (&no_hosts, ProviderKind::AnthropicAPI, &["key api-key"]),
        (
            &two_hosts,
            ProviderKind::UserSuppliedSecret,
            &[
                "key value",
                "keep only the hosts that may receive it: a.example.com, b.example.com",
            ],
        ),
        (&nothing, ProviderKind::AnthropicAPI, &[]),
    ] {
        let policy = scaffold("p", "parrot", resolved, Some(provider));
        let found = placeholders(&policy);
        assert_eq!(found.len(), said.len(), "{found:?}");
        for (line, part) in found.iter().zip(said) {
            assert!(line.contains(part), "{line}");
        }
    }
}

fn granted(policy: &BrokerPolicy) -> Value {
    serde_json::to_value(&policy.spec.grants).unwrap()
}

#[test]
fn scaffolded_anthropic_policy_is_complete() {
    let secret = json!({"name": "anthropic-api-key", "key": "api-key"});
    let credential = json!([{"name": "ANTHROPIC_API_KEY", "provider": {"kind": "AnthropicAPI", "secretRef": secret}}]);
    let anthropic = json!({"host": "api.anthropic.com", "ports": [443]});
    for (needs, egress) in [
        (json!([]), json!([anthropic])),
        (json!([anthropic]), json!([anthropic])),
        (
            json!([{"host": "*.anthropic.com"}]),
            json!([{"host": "*.anthropic.com"}]),
        ),
        (
            json!([{"host": "api.anthropic.com", "ports": [80]}, {"host": "npm.example.com"}]),
            json!([{"host": "api.anthropic.com", "ports": [80]}, {"host": "npm.example.com"}, anthropic]),
        ),
    ] {
        let resolved =
            requiring(json!({"credentials": [{"name": "ANTHROPIC_API_KEY"}], "egress": needs}));
        for provider in [None, Some(ProviderKind::AnthropicAPI)] {
            let policy = scaffold("claude", "claude", &resolved, provider);
            assert_eq!(
                granted(&policy),
                json!({"credentials": credential, "egress": egress})
            );
            assert_eq!(oz_runs::admission::policy(&policy, None, now()), vec![]);
        }
    }
}

/// Each credential with its provider, and the hosts of the credential for another service.
#[test]
fn scaffolded_credential_without_provider_has_that_of_its_name() {
    let anthropic = json!({"host": "api.anthropic.com", "ports": [443]});
    let git = json!({"host": "git.example.com", "ports": [443]});
    let placeholder = json!({"host": "api.example.com", "ports": [443]});
    for (needs, hosts, egress) in [
        (
            json!([anthropic, git]),
            json!(["git.example.com"]),
            json!([anthropic, git]),
        ),
        (
            json!([git]),
            json!(["git.example.com"]),
            json!([git, anthropic]),
        ),
        (
            json!([anthropic]),
            json!(["api.example.com"]),
            json!([anthropic, placeholder]),
        ),
        (
            json!([]),
            json!(["api.example.com"]),
            json!([anthropic, placeholder]),
        ),
    ] {
        let names = json!([{"name": "ANTHROPIC_API_KEY"}, {"name": "GIT_TOKEN"}]);
        let resolved = requiring(json!({"credentials": names, "egress": needs}));
        let policy = scaffold("p", "parrot", &resolved, None);
        let grants = granted(&policy);
        assert_eq!(grants["egress"], egress);
        let providers = [0_usize, 1].map(|number| &grants["credentials"][number]["provider"]);
        assert_eq!(providers[0]["kind"], "AnthropicAPI");
        assert_eq!(providers[0]["hosts"], Value::Null);
        assert_eq!(providers[1]["kind"], "UserSuppliedSecret");
        let injected = &providers[1]["deliveryMode"]["proxyInjected"];
        assert_eq!(injected["hosts"], hosts);
        assert!(suffices(&policy, "parrot", &resolved));
        assert_eq!(oz_runs::admission::policy(&policy, None, now()), vec![]);
    }
}

#[test]
fn scaffolded_policy_has_its_name_and_no_other_metadata() {
    let resolved = requiring(json!({"credentials": [{"name": "GIT_TOKEN"}]}));
    for provider in std::iter::once(None).chain(ProviderKind::iter().map(Some)) {
        let policy = scaffold("p", "parrot", &resolved, provider);
        let metadata = serde_json::to_value(policy.metadata).unwrap();
        assert_eq!(metadata, json!({"name": "p"}), "{provider:?}");
    }
}

#[test]
fn secret_access_is_limited_to_secrets_that_broker_reads() {
    let secret = |name: &str| json!({"name": name, "key": "value"});
    let injected = |name: &str, from: &str| {
        json!({"name": name, "provider": {
            "kind": "UserSuppliedSecret", "secretRef": secret(from),
            "deliveryMode": {"proxyInjected": {"hosts": ["api.example.com"], "header": {"name": "Authorization"}}},
        }})
    };
    let in_container = json!({"name": "D", "provider": {
        "kind": "UserSuppliedSecret", "secretRef": secret("mounted"),
        "deliveryMode": {"inContainer": {"accepted": true, "reason": "a reason of twenty letters or more"}},
    }});
    let mut all = policy(
        "tools",
        json!({"grants": {"credentials": [injected("A", "two"), injected("B", "one"), injected("C", "two"), in_container]}}),
    );
    all.metadata.namespace = Some("shop".to_owned());
    let broker = Account {
        namespace: "oz-system".to_owned(),
        name: "oz-broker".to_owned(),
    };
    let secrets: Vec<String> = read_by_brokers(&all).into_iter().collect();
    assert_eq!(secrets, ["one", "two"]);
    let (role, binding) = secret_access(&all, &broker).unwrap();
    assert_eq!(
        serde_json::to_value(role).unwrap(),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "tools-secrets", "namespace": "shop"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one", "two"], "verbs": ["get"]}],
        })
    );
    assert_eq!(
        serde_json::to_value(binding).unwrap(),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "tools-secrets", "namespace": "shop"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tools-secrets"},
            "subjects": [{"kind": "ServiceAccount", "name": "oz-broker", "namespace": "oz-system"}],
        })
    );
    all.metadata.name = Some("a".repeat(244) + "-.bcdefghi");
    let (role, _) = secret_access(&all, &broker).unwrap();
    assert_eq!(role.metadata.name.unwrap(), "a".repeat(244) + "-secrets");
    let none = policy(
        "none",
        json!({"grants": {"credentials": [in_container], "egress": [{"host": "api.example.com"}]}}),
    );
    assert_eq!(secret_access(&none, &broker), None);
}
