//! The features that a broker policy requests and that oz does not serve yet. The status of the policy lists them, since
//! the policy is Ready without them.

use oz_api::harness::BrokerPolicySpec;

use crate::provider::is_served;

/// Returns the features that a policy requests without effect, each with its field.
pub(super) fn features(spec: &BrokerPolicySpec) -> Vec<String> {
    let grants = &spec.grants;
    let credentials = grants.credentials.iter();
    let credentials = credentials.filter(|grant| !is_served(grant.provider.kind));
    let credentials =
        credentials.map(|grant| format!("credential {} by {}", grant.name, grant.provider.kind));
    let runs = grants.runs.as_ref();
    let others = [
        ("gitRepos", !grants.git_repos.is_empty()),
        ("runs.interact", runs.is_some_and(|runs| runs.interact)),
        ("runs.shell", runs.is_some_and(|runs| runs.shell.is_some())),
        ("egressDiscovery", spec.egress_discovery.is_some()),
    ];
    let others = others.into_iter().filter(|(_, is_requested)| *is_requested);
    credentials
        .chain(others.map(|(field, _)| field.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn unserved_features_of_policy_are_listed_and_no_others() {
        let credential = |name: &str, kind: &str| json!({"name": name, "provider": {"kind": kind}});
        let grants = |fields: Value| json!({"appliesToTemplates": ["*"], "grants": fields});
        for (spec, expected) in [
            (grants(json!({})), &[][..]),
            (
                grants(json!({
                    "credentials": [credential("A", "AnthropicAPI"), credential("U", "UserSuppliedSecret")],
                    "egress": [{"host": "api.example.com"}],
                    "runs": {},
                })),
                &[],
            ),
            (
                grants(json!({"credentials": [
                    credential("P", "PATPool"), credential("A", "AnthropicAPI"), credential("G", "GitHubApp"),
                ]})),
                &["credential P by PATPool", "credential G by GitHubApp"],
            ),
            (
                grants(json!({
                    "gitRepos": [{"owner": "o", "repo": "r"}], "runs": {"interact": true, "shell": {}},
                })),
                &["gitRepos", "runs.interact", "runs.shell"],
            ),
            (
                json!({"appliesToTemplates": ["*"], "egressDiscovery": {
                    "accepted": true, "reason": "none", "expiresAt": "2026-01-31T09:00:00Z",
                }}),
                &["egressDiscovery"],
            ),
        ] {
            let spec: BrokerPolicySpec = serde_json::from_value(spec).unwrap();
            assert_eq!(features(&spec), expected);
        }
    }
}
