//! The check whether a role can be used to escalate privileges, or to keep rights beyond the window: by a wildcard,
//! which includes future resources, by reading credentials, by a verb that passes on or takes over other rights, or by
//! writing objects that give rights or run as other accounts. It begins with the risks in the good practices of
//! Kubernetes for RBAC (<https://kubernetes.io/docs/concepts/security/rbac-good-practices/>).

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::privileged::{Danger, PRIVILEGED};

/// Verbs that pass on or take over rights
/// (<https://kubernetes.io/docs/concepts/security/rbac-good-practices/#privilege-escalation-risks>).
const ESCALATING: [&str; 3] = ["bind", "escalate", "impersonate"];

/// Returns the danger of a role with these rules, bound in this namespace or, with `None`, cluster-wide; `None` if no
/// danger is known.
#[must_use]
pub fn danger(rules: &[PolicyRule], namespace: Option<&str>) -> Option<Danger> {
    rules.iter().find_map(|rule| {
        let groups = rule.api_groups.as_deref().unwrap_or(&[]);
        let resources = rule.resources.as_deref().unwrap_or(&[]);
        let paths = rule.non_resource_urls.as_deref().unwrap_or(&[]);
        let mut all = rule
            .verbs
            .iter()
            .chain(groups)
            .chain(resources)
            .chain(paths);
        if let Some(wildcard) = all.find(|text| text.contains('*')) {
            return Some(Danger::Wildcard(wildcard.clone()));
        }
        if let Some(verb) = rule
            .verbs
            .iter()
            .find(|verb| ESCALATING.contains(&verb.as_str()))
        {
            return Some(Danger::Verb(verb.clone()));
        }
        let mut found = PRIVILEGED
            .iter()
            .map(|kind| kind.permitted(groups, resources, &rule.verbs, namespace));
        found.find_map(|found| found)
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
        for (groups, resources, verbs) in [
            (&[""][..], &["secrets"][..], &["list"][..]),
            (&["", "apps"], &["pods", "secrets"], &["get"]),
            (&["*"], &["pods"], &["get"]),
            (&[""], &["*"], &["get"]),
            (&[""], &["*/scale"], &["get"]),
            (&[""], &["pods"], &["*"]),
            (&["rbac.authorization.k8s.io"], &["roles"], &["bind"]),
            (&["rbac.authorization.k8s.io"], &["roles"], &["escalate"]),
            (&[""], &["users"], &["impersonate"]),
            (&["authentication.k8s.io"], &["uids"], &["impersonate"]),
            (&[""], &["serviceaccounts/token"], &["create"]),
            (&[""], &["nodes/proxy"], &["get"]),
        ] {
            let rule = rule(groups, resources, verbs);
            assert!(
                danger(std::slice::from_ref(&rule), Some("shop")).is_some(),
                "{rule:?}"
            );
        }
        let paths = PolicyRule {
            non_resource_urls: Some(vec!["/metrics/*".to_owned()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        };
        assert!(danger(&[paths], None).is_some());
        assert_eq!(danger(&[], None), None);
    }

    /// A group, resources of it, and verbs each of which is dangerous for each of them.
    type Row = (
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
    );

    const LASTING: &[Row] = &[
        (
            "rbac.authorization.k8s.io",
            &[
                "roles",
                "rolebindings",
                "clusterroles",
                "clusterrolebindings",
            ],
            &["create", "update", "patch"],
        ),
        (
            "",
            &["pods", "replicationcontrollers", "pods/ephemeralcontainers"],
            &["create", "update", "patch"],
        ),
        ("", &["pods/exec", "pods/attach"], &["create", "get"]),
        (
            "apps",
            &["deployments", "statefulsets", "daemonsets", "replicasets"],
            &["create", "update", "patch"],
        ),
        (
            "batch",
            &["jobs", "cronjobs"],
            &["create", "update", "patch"],
        ),
        ("argoproj.io", &["rollouts"], &["create", "patch"]),
        (
            "admissionregistration.k8s.io",
            &[
                "validatingwebhookconfigurations",
                "mutatingwebhookconfigurations",
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
                "mutatingadmissionpolicies",
                "mutatingadmissionpolicybindings",
            ],
            &["create", "update", "patch", "delete", "deletecollection"],
        ),
        (
            "apiextensions.k8s.io",
            &["customresourcedefinitions"],
            &["create", "update", "patch", "delete"],
        ),
        (
            "apiregistration.k8s.io",
            &["apiservices"],
            &["create", "update", "patch", "delete"],
        ),
        (
            "certificates.k8s.io",
            &["certificatesigningrequests/approval"],
            &["update", "patch"],
        ),
        (
            "certificates.k8s.io",
            &["certificatesigningrequests/status", "clustertrustbundles"],
            &["update", "patch"],
        ),
        (
            "certificates.k8s.io",
            &["signers"],
            &["approve", "sign", "attest"],
        ),
        (
            "",
            &["namespaces", "namespaces/status", "namespaces/finalize"],
            &["update", "patch"],
        ),
        ("", &["persistentvolumes"], &["create"]),
        (
            "crds.wizardofoz.co",
            &[
                "execaccesstemplates",
                "podaccesstemplates",
                "execaccessrequests",
                "podaccessrequests",
                "execaccessrequests/status",
                "transientrolebindings",
                "transientclusterrolebindings",
                "auditevents",
            ],
            &["create", "update", "patch", "delete", "deletecollection"],
        ),
        (
            "example.com",
            &["transientrolebindings", "transientclusterrolebindings"],
            &["create", "patch"],
        ),
        ("paddock.dev", &["harnessruns", "workspaces"], WRITES),
        (
            "metacontroller.k8s.io",
            &["compositecontrollers", "controllerrevisions"],
            WRITES,
        ),
        (
            "argoproj.io",
            &[
                "workflows",
                "cronworkflows",
                "applications",
                "applicationsets",
            ],
            WRITES,
        ),
        (
            "certificates.k8s.io",
            &["certificatesigningrequests"],
            &["create", "update"],
        ),
        ("coordination.k8s.io", &["leases"], WRITES),
        (
            "",
            &[
                "serviceaccounts",
                "nodes",
                "nodes/status",
                "endpoints",
                "configmaps",
            ],
            &["create", "update", "patch"],
        ),
        (
            "discovery.k8s.io",
            &["endpointslices"],
            &["create", "update", "patch"],
        ),
        ("networking.k8s.io", &["networkpolicies"], WRITES),
    ];

    const WRITES: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];

    #[test]
    fn config_maps_are_written_in_any_namespace_but_that_of_the_system() {
        let writes = [rule(&[""], &["configmaps"], &["get", "patch"])];
        assert_eq!(danger(&writes, Some("shop")), None);
        for place in [Some("kube-system"), None] {
            assert!(danger(&writes, place).is_some(), "{place:?}");
        }
    }

    #[test]
    fn verbs_that_give_lasting_rights_are_dangerous() {
        for &(group, resources, verbs) in LASTING {
            for resource in resources {
                for verb in verbs {
                    let rules = [rule(&["", group], &[resource], &["list", verb])];
                    let found = danger(&rules, Some("kube-system"));
                    let found = found.unwrap_or_else(|| panic!("{verb} {resource}.{group}"));
                    assert!(found.to_string().contains(resource), "{found}");
                    // Whatever stands before it.
                    let second = [
                        rule(&[""], &["pods"], &["get"]),
                        rule(&[group], &["events", resource], &[verb]),
                    ];
                    assert!(danger(&second, None).is_some(), "{verb} {resource}.{group}");
                }
            }
        }
    }

    #[test]
    fn looking_and_what_lies_with_those_who_run_things_is_harmless() {
        for (groups, resources, verbs) in [
            (
                &[""][..],
                &["pods", "pods/log", "events", "configmaps", "namespaces"][..],
                &["get", "list", "watch"][..],
            ),
            (&[""], &["pods"], &["delete"]),
            (&[""], &["pods/eviction"], &["create"]),
            (&[""], &["configmaps", "services"], &["create", "patch"]),
            (&["apps"], &["deployments"], &["get", "delete"]),
            (&["apps"], &["deployments/scale"], &["patch"]),
            (&["batch"], &["jobs"], &["delete"]),
            // Another group's resources of these names.
            (&["example.com"], &["secrets", "pods"], &["create"]),
            (&["apps"], &["pods"], &["create"]),
            (
                &["rbac.authorization.k8s.io"],
                &["roles", "rolebindings"],
                &["get", "list", "watch", "delete"],
            ),
            (
                &["admissionregistration.k8s.io", "apiextensions.k8s.io"],
                &[
                    "validatingwebhookconfigurations",
                    "customresourcedefinitions",
                ],
                &["get", "list", "watch"],
            ),
            (
                &["certificates.k8s.io"],
                &["certificatesigningrequests"],
                &["get"],
            ),
            (
                &["crds.wizardofoz.co"],
                &["execaccessrequests", "auditevents"],
                &["get", "list", "watch"],
            ),
        ] {
            let rule = rule(groups, resources, verbs);
            let found = danger(std::slice::from_ref(&rule), Some("shop"));
            assert_eq!(found, None, "{rule:?}");
        }
    }
}
