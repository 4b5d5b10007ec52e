//! Rights of a grant that a user copies into another Role: the copy would last longer than the grant.
//! Kubernetes lets the holder of a right pass it on, and a grant gives its holder the right for a time.
//! See
//! <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>.

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::ConnectionKind;
use crate::access::grant::Grant;

/// The ways to connect to pods that grants give by RBAC.
const GIVEN: [(ConnectionKind, &str); 3] = [
    (ConnectionKind::Exec, "exec"),
    (ConnectionKind::Attach, "attach"),
    (ConnectionKind::PortForward, "portforward"),
];
/// The verbs that open a connection: `create`, and where Kubernetes requires no more, `get`.
const VERBS: [&str; 2] = ["create", "get"];

/// A right to connect to pods, as an RBAC rule expresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// `create` or `get`.
    pub verb: &'static str,
    /// A subresource of pods.
    pub subresource: &'static str,
}

/// Returns those of the grant's rights that these rules give for its pod by name. A rule that names no pod
/// gives more than any grant, and Kubernetes itself checks whether its author may give that.
#[must_use]
pub fn copied(rules: &[PolicyRule], grant: &Grant) -> Vec<Entry> {
    let names_the_pod = |rule: &&PolicyRule| {
        let names = rule.resource_names.as_ref();
        names.is_some_and(|names| names.contains(&grant.pod.name))
    };
    let rules: Vec<&PolicyRule> = rules.iter().filter(names_the_pod).collect();
    let mut entries = Vec::new();
    for (way, subresource) in GIVEN {
        let given = way.operation();
        if given.is_some_and(|operation| grant.operations.contains(&operation)) {
            let handed = |verb: &&'static str| {
                rules
                    .iter()
                    .any(|rule| lets_in(rule, subresource) && has(&rule.verbs, verb))
            };
            let verbs = VERBS.into_iter().filter(handed);
            entries.extend(verbs.map(|verb| Entry { verb, subresource }));
        }
    }
    entries
}

/// Returns every right to connect to pods that a rule gives, for any pods.
#[must_use]
pub fn entries(rule: &PolicyRule) -> Vec<Entry> {
    let connects = GIVEN.map(|(_, subresource)| (subresource, &VERBS[..]));
    let proxies = ("proxy", &VERBS[..]);
    let changes = ("ephemeralcontainers", &["update", "patch"][..]);
    connects
        .into_iter()
        .chain([proxies, changes])
        .filter(|(subresource, _)| lets_in(rule, subresource))
        .flat_map(|(subresource, verbs)| {
            let handed = verbs.iter().filter(|verb| has(&rule.verbs, verb));
            handed.map(move |verb| Entry { verb, subresource })
        })
        .collect()
}

/// Checks whether a rule permits connections to kubelets, which run commands in every pod of their nodes. It
/// has no effect in a namespace: nodes are in none.
#[must_use]
pub fn into_nodes(rule: &PolicyRule) -> bool {
    let any = |all: &Option<Vec<String>>, wanted: &[&str]| {
        let mut all = all.iter().flatten();
        all.any(|one| wanted.contains(&one.as_str()))
    };
    any(&rule.api_groups, &["", "*"]) && any(&rule.resources, &["nodes/proxy", "*/proxy", "*"])
}

/// Checks whether a rule covers this subresource of pods, as Kubernetes itself reads it: `pods/*` has no
/// meaning there, `*/exec` has.
fn lets_in(rule: &PolicyRule, subresource: &str) -> bool {
    let groups = rule.api_groups.iter().flatten();
    let mut resources = rule.resources.iter().flatten();
    groups
        .into_iter()
        .any(|group| group.is_empty() || group == "*")
        && resources.any(|resource| {
            resource == "*"
                || resource
                    .split_once('/')
                    .is_some_and(|(of, sub)| sub == subresource && (of == "pods" || of == "*"))
        })
}

fn has(verbs: &[String], verb: &str) -> bool {
    verbs.iter().any(|one| one == verb || one == "*")
}

#[cfg(test)]
mod tests {
    use oz_api::Operation;
    use serde_json::{Value, json};

    use super::super::tests::grant;
    use super::*;

    fn rule(resources: &[&str], verbs: &[&str], names: &[&str]) -> PolicyRule {
        let rule: Value = json!({
            "apiGroups": [""], "resources": resources, "verbs": verbs, "resourceNames": names,
        });
        serde_json::from_value(rule).unwrap()
    }

    fn found(rules: &[PolicyRule]) -> Vec<String> {
        let entries = copied(rules, &grant());
        let text = |entry: Entry| format!("{} {}", entry.verb, entry.subresource);
        entries.into_iter().map(text).collect()
    }

    #[test]
    fn rule_that_copies_grant_is_found_in_any_spelling() {
        for (resources, verbs, names, expected) in [
            (
                &["pods/exec"][..],
                &["create"][..],
                &["db-0"][..],
                &["create exec"][..],
            ),
            (&["pods/exec"], &["get"], &["web", "db-0"], &["get exec"]),
            (
                &["pods/exec"],
                &["*"],
                &["db-0"],
                &["create exec", "get exec"],
            ),
            (&["*/exec"], &["create"], &["db-0"], &["create exec"]),
            (&["pods", "*"], &["create"], &["db-0"], &["create exec"]),
            // Kubernetes reads it as the name of a resource that does not exist.
            (&["pods/*"], &["create"], &["db-0"], &[]),
            (&["pods/exec"], &["list", "patch"], &["db-0"], &[]),
            (&["pods/exec"], &["create"], &["web"], &[]),
            (&["pods/exec"], &["create"], &[], &[]),
            (&["pods", "pods/log"], &["*"], &["db-0"], &[]),
            // The grant is for exec alone.
            (&["pods/attach"], &["create"], &["db-0"], &[]),
        ] {
            assert_eq!(
                found(&[rule(resources, verbs, names)]),
                expected,
                "{resources:?} {verbs:?} {names:?}"
            );
        }
        let apart = [
            rule(&["pods/exec"], &["create"], &["db-0"]),
            rule(&["pods/exec"], &["get"], &["db-0"]),
        ];
        assert_eq!(found(&apart), ["create exec", "get exec"]);
        let mut other_group = rule(&["*"], &["*"], &["db-0"]);
        other_group.api_groups = Some(vec!["apps".to_owned()]);
        assert!(found(&[other_group]).is_empty());
    }

    #[test]
    fn grant_of_logs_only_has_no_copies() {
        let mut logs = grant();
        logs.operations = vec![Operation::Log];
        assert!(copied(&[rule(&["*"], &["*"], &["db-0"])], &logs).is_empty());
    }

    #[test]
    fn all_ways_into_pods_are_listed() {
        let all = entries(&rule(&["*"], &["*"], &[]));
        assert_eq!(all.len(), 10);
        let edit = entries(&rule(
            &["pods/exec", "pods/proxy"],
            &["create", "patch"],
            &[],
        ));
        let text: Vec<_> = edit.iter().map(|one| (one.verb, one.subresource)).collect();
        assert_eq!(text, [("create", "exec"), ("create", "proxy")]);
        assert!(entries(&rule(&["pods", "pods/log"], &["*"], &[])).is_empty());
    }
}
