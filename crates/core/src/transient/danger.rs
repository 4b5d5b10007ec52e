//! Whether a role can be used to get more than it says: by a wildcard, which covers what nobody has
//! thought of yet, by reading credentials, or by a verb that hands on or takes over other rights.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// Verbs that make rights out of rights.
const ESCALATING: [&str; 3] = ["bind", "escalate", "impersonate"];
/// Resources, whatever the verb, by which other identities are taken over.
const CREDENTIALS: [(&str, &str); 4] = [
    ("", "secrets"),
    ("", "serviceaccounts/token"),
    ("", "nodes/proxy"),
    ("certificates.k8s.io", "certificatesigningrequests/approval"),
];

/// What is dangerous about a role with these rules; `None` if nothing is known to be.
#[must_use]
pub fn danger(rules: &[PolicyRule]) -> Option<String> {
    rules.iter().find_map(|rule| {
        let groups = rule.api_groups.as_deref().unwrap_or_default();
        let resources = rule.resources.as_deref().unwrap_or_default();
        let paths = rule.non_resource_urls.as_deref().unwrap_or_default();
        let mut all = rule
            .verbs
            .iter()
            .chain(groups)
            .chain(resources)
            .chain(paths);
        if let Some(wildcard) = all.find(|text| text.contains('*')) {
            return Some(format!("a rule of it says {wildcard:?}"));
        }
        if let Some(verb) = rule
            .verbs
            .iter()
            .find(|verb| ESCALATING.contains(&verb.as_str()))
        {
            return Some(format!("a rule of it permits {verb}"));
        }
        let found = CREDENTIALS.iter().find(|(group, resource)| {
            groups.iter().any(|text| text == group) && resources.iter().any(|text| text == resource)
        });
        found.map(|(_, resource)| format!("a rule of it is about {resource}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(owned(groups)),
            resources: Some(owned(resources)),
            verbs: owned(verbs),
            ..PolicyRule::default()
        }
    }

    #[test]
    fn wildcards_credentials_and_verbs_that_escalate_are_dangerous() {
        for (harmless, rule) in [
            (
                true,
                rule(&[""], &["pods", "pods/log"], &["get", "list", "watch"]),
            ),
            (
                true,
                rule(&["apps"], &["deployments"], &["patch", "delete"]),
            ),
            // Another group's resource of that name.
            (true, rule(&["example.com"], &["secrets"], &["get"])),
            (false, rule(&[""], &["secrets"], &["list"])),
            (false, rule(&["", "apps"], &["pods", "secrets"], &["get"])),
            (false, rule(&["*"], &["pods"], &["get"])),
            (false, rule(&[""], &["*"], &["get"])),
            (false, rule(&[""], &["*/scale"], &["get"])),
            (false, rule(&[""], &["pods"], &["*"])),
            (
                false,
                rule(&["rbac.authorization.k8s.io"], &["roles"], &["bind"]),
            ),
            (
                false,
                rule(&["rbac.authorization.k8s.io"], &["roles"], &["escalate"]),
            ),
            (false, rule(&[""], &["users"], &["impersonate"])),
            (false, rule(&[""], &["serviceaccounts/token"], &["create"])),
            (false, rule(&[""], &["nodes/proxy"], &["get"])),
        ] {
            assert_eq!(
                danger(std::slice::from_ref(&rule)).is_none(),
                harmless,
                "{rule:?}"
            );
        }
        let paths = PolicyRule {
            non_resource_urls: Some(vec!["/metrics/*".to_owned()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        };
        assert!(danger(&[paths]).is_some());
        assert_eq!(danger(&[]), None);
    }
}
