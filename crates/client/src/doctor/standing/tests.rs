//! The report about bindings, and about the parts of them that other users chose.

use serde_json::{Value, json};

use super::super::Verdict;
use super::*;

fn rules(resource: &str, names: &[&str]) -> Vec<PolicyRule> {
    let rule: Value = json!({
        "apiGroups": [""], "resources": [resource], "verbs": ["create"], "resourceNames": names,
    });
    vec![serde_json::from_value(rule).unwrap()]
}

fn binding(namespace: &str, name: &str, role: (&str, &str), subject: &Value) -> Binding {
    let role = json!({ "apiGroup": "", "kind": role.0, "name": role.1 });
    Binding {
        key: (
            Some(namespace.to_owned()).filter(|one| !one.is_empty()),
            name.to_owned(),
        ),
        role: serde_json::from_value(role).unwrap(),
        subjects: vec![serde_json::from_value(subject.clone()).unwrap()],
    }
}

fn text(rbac: &Rbac) -> String {
    let finding = summarize(rbac, "oz-system");
    assert_eq!(finding.verdict, Verdict::Good);
    finding.message
}

fn rbac(bindings: Vec<Binding>) -> Rbac {
    let shop = Some("shop".to_owned());
    Rbac {
        roles: BTreeMap::from([
            ((None, "edit".to_owned()), rules("pods/exec", &[])),
            ((None, "view".to_owned()), rules("pods/log", &[])),
            (
                (shop, "for-ever".to_owned()),
                rules("pods/attach", &["db-0"]),
            ),
        ]),
        bindings,
        ours: BTreeSet::from([(Some("shop".to_owned()), "mine-01234567".to_owned())]),
        cut_short: false,
    }
}

#[test]
fn bindings_that_give_pod_access_without_oz_are_reported() {
    let group = json!({ "kind": "Group", "name": "devs" });
    let user = json!({ "kind": "User", "name": "mallory\u{1b}[2J" });
    let system = json!({ "kind": "ServiceAccount", "namespace": "kube-system", "name": "x" });
    let edit = ("ClusterRole", "edit");
    let told = text(&rbac(vec![
        binding("shop", "editors", edit, &group),
        binding("", "system", edit, &system),
        binding("shop", "viewers", ("ClusterRole", "view"), &group),
        binding("shop", "mine", ("Role", "for-ever"), &user),
        binding("shop", "gone", ("Role", "absent"), &user),
    ]));
    assert_eq!(
        told,
        "2 bindings grant access to pods without oz (left out: system:masters, nodes, kube-system \
         and oz itself): RoleBinding shop/editors: Group devs (exec); RoleBinding shop/mine: User \
         mallory\\u{1b}[2J (attach of db-0)"
    );
}

#[test]
fn all_kinds_of_roles_rights_and_subjects_are_reported() {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| -> PolicyRule {
        let rule = json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
        serde_json::from_value(rule).unwrap()
    };
    let user = json!({ "kind": "User", "name": "alice" });
    let group = json!({ "kind": "Group", "name": "system:authenticated" });
    let account = json!({ "kind": "ServiceAccount", "namespace": "ci", "name": "bot" });
    let connect = "attach, ephemeralcontainers, exec, portforward, proxy";
    for (rule, by_role, by_cluster_role) in [
        (rule(&[""], &["pods/exec"], &["create"]), "(exec)", "(exec)"),
        (rule(&[""], &["pods/exec"], &["get"]), "(exec)", "(exec)"),
        (rule(&["*"], &["*/attach"], &["*"]), "(attach)", "(attach)"),
        (
            rule(&[""], &["pods/portforward"], &["*"]),
            "(portforward)",
            "(portforward)",
        ),
        (rule(&[""], &["pods/proxy"], &["get"]), "(proxy)", "(proxy)"),
        (
            rule(&[""], &["pods/ephemeralcontainers"], &["patch"]),
            "(ephemeralcontainers)",
            "(ephemeralcontainers)",
        ),
        (
            rule(&["*"], &["*"], &["*"]),
            &format!("({connect})"),
            "(attach, ephemeralcontainers, exec, nodes/proxy, portforward, proxy)",
        ),
        (
            rule(&[""], &["nodes/proxy"], &["get"]),
            "no binding",
            "(nodes/proxy)",
        ),
        (
            rule(&[""], &["pods/*", "pods", "pods/log"], &["*"]),
            "no binding",
            "no binding",
        ),
        (rule(&["apps"], &["*"], &["*"]), "no binding", "no binding"),
        (
            rule(&[""], &["pods/exec"], &["list", "watch"]),
            "no binding",
            "no binding",
        ),
    ] {
        for (subject, who) in [
            (&user, "User alice"),
            (&group, "Group system:authenticated"),
            (&account, "ServiceAccount ci/bot"),
        ] {
            let shop = Some("shop".to_owned());
            let roles = [(shop, "mine".to_owned()), (None, "mine".to_owned())];
            let bound = |namespace, kind| {
                let rbac = Rbac {
                    roles: roles.clone().map(|role| (role, vec![rule.clone()])).into(),
                    bindings: vec![binding(namespace, "b", (kind, "mine"), subject)],
                    ..Rbac::default()
                };
                text(&rbac)
            };
            for (told, wanted) in [
                (bound("shop", "Role"), by_role),
                (bound("shop", "ClusterRole"), by_role),
                (bound("", "ClusterRole"), by_cluster_role),
            ] {
                assert!(told.contains(wanted), "{rule:?}: {told}");
                assert!(wanted == "no binding" || told.contains(who), "{told}");
            }
        }
    }
}

#[test]
fn a_grant_is_left_out_while_its_request_exists() {
    let user = json!({ "kind": "User", "name": "alice" });
    for (namespace, name, told) in [
        ("shop", "mine-01234567", "no binding"),
        ("shop", "mine-89abcdef", "1 binding"),
        ("bank", "mine-01234567", "1 binding"),
    ] {
        let grant = binding(namespace, name, ("ClusterRole", "edit"), &user);
        assert!(
            text(&rbac(vec![grant])).starts_with(told),
            "{namespace} {name}"
        );
    }
}

#[test]
fn reported_bindings_are_bounded() {
    let name = "x".repeat(10_000);
    let user = json!({ "kind": "User", "name": name });
    let many = (0..1000).map(|_| binding("shop", &name, ("ClusterRole", "edit"), &user));
    let told = text(&rbac(many.collect()));
    assert!(
        told.len() < 10_000 && told.ends_with("and 980 more"),
        "{told}"
    );
}
