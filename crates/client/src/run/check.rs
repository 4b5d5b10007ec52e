//! The state of the grants for a template: each credential, each host, and the conditions of the policies.

use kube::ResourceExt;
use oz_api::conditions;
use oz_api::harness::{BrokerPolicy, EgressNeed, Hosts};
pub use oz_runs::definitions::{SECRETS_READABLE, VERIFIED};
use oz_runs::policy::Matching;
use oz_runs::provider::{self, CREDENTIAL_PORT, is_served, read_by_brokers};
use oz_runs::requires::{destination, gaps};
use oz_runs::template::Resolved;

use super::finding::{Finding, finding};

/// Returns the state of each requirement of a template, then the conditions of the policies.
pub(super) fn examine(resolved: &Resolved, matching: &Matching<'_>) -> Vec<Finding> {
    let credentials = resolved.credentials.iter();
    let mut findings: Vec<Finding> = credentials.map(|name| credential(name, matching)).collect();
    let lacking = gaps(resolved, matching).egress;
    findings.extend(resolved.egress.iter().map(|need| host(need, &lacking)));
    findings.extend(matching.iter().flat_map(standing));
    findings
}

/// Returns the state of a required credential.
fn credential(name: &str, matching: &Matching<'_>) -> Finding {
    let state = |holds, message: String| finding(holds, "credential", format!("{name}: {message}"));
    let Some((policy, grant)) = matching.credential(name) else {
        return state(false, "no BrokerPolicy grants it".to_owned());
    };
    let (by, provider) = (policy.name_any(), &grant.provider);
    if !is_served(provider.kind) {
        let kind = provider.kind;
        return state(
            false,
            format!("BrokerPolicy {by} grants it by {kind}, which is not served yet"),
        );
    }
    let hosts = provider::hosts(provider);
    for text in &hosts {
        let hosts = text.parse::<Hosts>();
        if !hosts.is_ok_and(|hosts| matching.covers(&hosts, CREDENTIAL_PORT)) {
            return state(
                false,
                format!(
                    "BrokerPolicy {by} grants it for {text}, and no BrokerPolicy grants port {CREDENTIAL_PORT} of that host"
                ),
            );
        }
    }
    let mut message = format!("BrokerPolicy {by} grants it by {}", provider.kind);
    if let Some(secret) = &provider.secret_ref {
        message.push_str(&format!(
            ", from Secret {}, key {}",
            secret.name, secret.key
        ));
    }
    message.push_str(&match &hosts[..] {
        [] => ", in the container of the agent".to_owned(),
        hosts => format!(", for {}", hosts.join(", ")),
    });
    let others = matching.iter().filter(|other| other.name_any() != by);
    let others = others.filter(|other| {
        let mut grants = other.spec.grants.credentials.iter();
        grants.any(|grant| grant.name == name)
    });
    let others: Vec<String> = others.map(ResourceExt::name_any).collect();
    if !others.is_empty() {
        message.push_str(&format!(
            "; {} grants it as well, and the first by name counts",
            others.join(", ")
        ));
    }
    state(true, message)
}

/// Returns the state of a required host.
fn host(need: &EgressNeed, lacking: &[EgressNeed]) -> Finding {
    let lacks = lacking.iter().find(|lacks| lacks.host == need.host);
    match lacks {
        Some(lacks) => finding(
            false,
            "host",
            format!("{}: no BrokerPolicy grants it", destination(lacks)),
        ),
        None => finding(true, "host", format!("{}: granted", destination(need))),
    }
}

/// A condition of a policy without which brokers lend no credential by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyCondition {
    /// The type: [`VERIFIED`] or [`SECRETS_READABLE`].
    pub type_: &'static str,
    /// True if it is met for the current spec; `None` if that is not known.
    pub holds: Option<bool>,
    /// The state, with the name of the policy.
    pub message: String,
}

/// Returns the conditions without which brokers lend no credential by a policy, if it grants any: its spec is verified,
/// and the broker may read its Secrets.
#[must_use]
pub fn policy_conditions(policy: &BrokerPolicy) -> Vec<PolicyCondition> {
    let mut types = Vec::new();
    if !policy.spec.grants.credentials.is_empty() {
        types.push(VERIFIED);
    }
    if !read_by_brokers(policy).is_empty() {
        types.push(SECRETS_READABLE);
    }
    let conditions = types.into_iter().map(|type_| condition(policy, type_));
    conditions.collect()
}

/// Returns the same conditions as findings.
pub(super) fn standing(policy: &BrokerPolicy) -> impl Iterator<Item = Finding> {
    let conditions = policy_conditions(policy).into_iter();
    conditions.map(|one| finding(one.holds, "policy", one.message))
}

fn condition(policy: &BrokerPolicy, type_: &'static str) -> PolicyCondition {
    let name = policy.name_any();
    let status = policy.status.as_ref();
    let known = status.and_then(|status| conditions::find(&status.conditions, type_));
    let current = known.filter(|known| {
        known.observed_generation.is_none()
            || known.observed_generation == policy.metadata.generation
    });
    let (holds, message) = match current {
        None => (
            None,
            format!("the operator has not set {type_} for this spec yet"),
        ),
        Some(known) => {
            let holds = match known.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            };
            let text = format!(
                "{type_} is {}: {} ({})",
                known.status, known.message, known.reason
            );
            (holds, text)
        }
    };
    PolicyCondition {
        type_,
        holds,
        message: format!("BrokerPolicy {name}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use oz_api::harness::HarnessTemplateSpec;
    use oz_runs::template::resolve;
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, grants: &Value, conditions: &Value) -> BrokerPolicy {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "generation": 2},
            "spec": {"appliesToTemplates": ["*"], "grants": grants},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn requiring(requires: &Value) -> Resolved {
        let spec: HarnessTemplateSpec = serde_json::from_value(json!({
            "image": "agent:1", "command": ["/agent"], "runtime": {"image": "runtime:1"}, "requires": requires,
        }))
        .unwrap();
        resolve(&spec, None).unwrap()
    }

    fn messages(findings: &[Finding], holds: Option<bool>) -> Vec<String> {
        let these = findings.iter().filter(|one| one.holds == holds);
        these
            .map(|one| format!("{}: {}", one.about, one.message))
            .collect()
    }

    fn injected(name: &str, host: &str) -> Value {
        json!({"name": name, "provider": {
            "kind": "UserSuppliedSecret", "secretRef": {"name": "tokens", "key": "one"},
            "deliveryMode": {"proxyInjected": {"hosts": [host], "header": {"name": "Authorization"}}},
        }})
    }

    #[test]
    fn each_requirement_has_finding_with_its_policy() {
        let resolved = requiring(&json!({
            "credentials": [{"name": "A"}, {"name": "B"}, {"name": "C"}, {"name": "D"}],
            "egress": [{"host": "a.example.com", "ports": [443]}, {"host": "b.example.com", "ports": [443, 80]}],
        }));
        let app = json!({"name": "C", "provider": {
            "kind": "GitHubApp", "secretRef": {"name": "app", "key": "key"}, "appId": "1", "installationId": "1",
        }});
        let one = policy(
            "one",
            &json!({
                "credentials": [injected("A", "a.example.com"), injected("B", "b.example.com"), app],
                "egress": [{"host": "a.example.com", "ports": [443]}, {"host": "b.example.com", "ports": [80]}],
            }),
            &json!([]),
        );
        let two = policy(
            "two",
            &json!({"credentials": [injected("A", "a.example.com")]}),
            &json!([]),
        );
        let all = [one, two];
        let findings = examine(&resolved, &Matching::from_policies(&all, "agent"));
        assert_eq!(
            messages(&findings, Some(true)),
            [
                "credential: A: BrokerPolicy one grants it by UserSuppliedSecret, from Secret tokens, key one, for \
                 a.example.com; two grants it as well, and the first by name counts",
                "host: a.example.com:443: granted",
            ]
        );
        assert_eq!(
            messages(&findings, Some(false)),
            [
                "credential: B: BrokerPolicy one grants it for b.example.com, and no BrokerPolicy grants port 443 of that \
                 host",
                "credential: C: BrokerPolicy one grants it by GitHubApp, which is not served yet",
                "credential: D: no BrokerPolicy grants it",
                "host: b.example.com:443: no BrokerPolicy grants it",
            ]
        );
        assert_eq!(
            messages(&findings, None)[0],
            "policy: BrokerPolicy one: the operator has not set Verified for this spec yet"
        );
    }

    #[test]
    fn condition_of_earlier_spec_is_unknown() {
        let condition = |type_: &str, status: &str, generation: i64| {
            json!({
                "type": type_, "status": status, "reason": "Tested", "message": "a message",
                "observedGeneration": generation, "lastTransitionTime": "2026-01-01T12:00:00Z",
            })
        };
        let grants = json!({"credentials": [injected("A", "a.example.com")]});
        for (conditions, holds) in [
            (
                json!([
                    condition("Verified", "True", 2),
                    condition("SecretsReadable", "True", 2)
                ]),
                [Some(true), Some(true)],
            ),
            (
                json!([
                    condition("Verified", "True", 1),
                    condition("SecretsReadable", "False", 2)
                ]),
                [None, Some(false)],
            ),
            (json!([condition("Verified", "Unknown", 2)]), [None, None]),
        ] {
            let found = policy_conditions(&policy("one", &grants, &conditions));
            let states: Vec<_> = found.iter().map(|one| one.holds).collect();
            assert_eq!(states, holds, "{found:?}");
        }
        let hosts = json!({"egress": [{"host": "a.example.com"}]});
        assert_eq!(policy_conditions(&policy("one", &hosts, &json!([]))), []);
    }
}
