//! The chart's roles are those of `deploy/rbac`, under which demo and tests run: rule for rule,
//! subject for subject.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use oz_e2e::repository;
use serde_json::{Value, json};

use crate::{name_of, rendered};

pub(crate) const KINDS: [&str; 5] = [
    "ServiceAccount",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
];

/// Returns each single permission of a role, or the subjects of a binding: the order of rules, and the grouping of
/// permissions into rules, have no meaning.
fn meaning(object: &Value) -> BTreeSet<String> {
    let empty = vec![json!(null)];
    let list = |value: &Value| value.as_array().unwrap_or(&empty).clone();
    let mut meaning = BTreeSet::new();
    for rule in object["rules"].as_array().into_iter().flatten() {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                for verb in list(&rule["verbs"]) {
                    for name in list(&rule["resourceNames"]) {
                        meaning.insert(format!("{verb} {group} {resource} {name}"));
                    }
                }
            }
        }
    }
    for subject in object["subjects"].as_array().into_iter().flatten() {
        meaning.insert(subject.to_string());
    }
    if !object["roleRef"].is_null() {
        meaning.insert(object["roleRef"].to_string());
    }
    for (label, value) in object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
    {
        if label.contains("aggregate-to") {
            meaning.insert(format!("{label}={value}"));
        }
    }
    meaning
}

fn meanings(objects: Vec<Value>) -> BTreeMap<String, BTreeSet<String>> {
    objects
        .iter()
        .filter(|object| KINDS.contains(&object["kind"].as_str().unwrap_or_default()))
        // Rights of hooks exist only while a hook runs.
        .filter(|object| object["metadata"]["annotations"]["helm.sh/hook"].is_null())
        .map(|object| (name_of(object), meaning(object)))
        .collect()
}

/// Returns the objects in a file.
fn manifests(path: &Path) -> Result<Vec<Value>> {
    Ok(serde_saphyr::from_multiple(&std::fs::read_to_string(
        path,
    )?)?)
}

/// Returns the objects in a file of `deploy/rbac`.
fn in_rbac(file: &str) -> Result<Vec<Value>> {
    manifests(&repository().join("deploy/rbac").join(file))
}

#[test]
fn the_charts_roles_are_those_that_demo_and_tests_run_under() -> Result<()> {
    let mut written = Vec::new();
    for entry in std::fs::read_dir(repository().join("deploy/rbac"))? {
        let path = entry?.path();
        // The directory has the rights of optional features.
        if path.is_dir() {
            continue;
        }
        written.extend(manifests(&path)?);
    }
    let (mut written, charts) = (meanings(written), meanings(rendered(&[])?));
    // `deploy/rbac` has a separate role, so that it can be left out; the chart has a value.
    for part in ["pods", "role-names"] {
        let of_part = written.remove(&format!("ClusterRole oz-operator-{part}"));
        written.remove(&format!("ClusterRoleBinding oz-operator-{part}"));
        let operator = written.get_mut("ClusterRole oz-operator");
        operator.unwrap().extend(of_part.unwrap());
    }
    assert_eq!(
        written.keys().collect::<Vec<_>>(),
        charts.keys().collect::<Vec<_>>()
    );
    for (name, meaning) in &written {
        assert_eq!(Some(meaning), charts.get(name), "{name}");
    }
    Ok(())
}

#[test]
fn operator_may_bind_listed_roles_with_transient_bindings() -> Result<()> {
    let written = in_rbac("transient/operator.yaml")?;
    let charts = meanings(rendered(&["--set=transient.bindableRoles={view}"])?);
    let written = meanings(written);
    assert_eq!(written.len(), 2);
    for (name, meaning) in &written {
        assert_eq!(Some(meaning), charts.get(name), "{name}");
    }
    let refused = crate::template(&["--set=transient.bindableRoles={team-*}"])?;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("RBAC knows no patterns"), "{said}");
    Ok(())
}

#[test]
fn without_its_policies_the_operator_binds_no_reserved_names() -> Result<()> {
    let binds = |meanings: BTreeMap<String, BTreeSet<String>>| {
        let rights = meanings.into_values().flatten();
        rights.filter(|right| right.starts_with("\"bind\"")).count()
    };
    let with = binds(meanings(rendered(&[])?));
    assert_eq!(with, usize::from(oz_api::names::GRANT_ROLES));
    assert_eq!(
        binds(meanings(rendered(&["--set=policies.create=false"])?)),
        0
    );
    Ok(())
}

#[test]
fn with_composites_the_operator_may_be_their_account_and_that_may_do_what_the_values_say()
-> Result<()> {
    let charts = meanings(rendered(&["--set=composites.enabled=true"])?);
    for component in ["operator", "webhook"] {
        let written = in_rbac(&format!("composites/{component}.yaml"))?;
        for (name, meaning) in meanings(written) {
            assert_eq!(Some(&meaning), charts.get(&name), "{name}");
        }
    }
    assert!(
        !charts.contains_key("ClusterRole oz-composites"),
        "nothing by itself"
    );
    let rule = "composites.enabled=true,composites.defaultAccount.rules[0].verbs={get},\
                composites.defaultAccount.rules[0].apiGroups={apps},\
                composites.defaultAccount.rules[0].resources={deployments}";
    let charts = meanings(rendered(&[&format!("--set={}", rule.replace(' ', ""))])?);
    assert_eq!(charts["ClusterRole oz-composites"].len(), 1);
    let others = "composites.enabled=true,composites.accounts[0].namespace=shop,composites.accounts[0].name=deployer";
    let charts = meanings(rendered(&[&format!("--set={others}")])?);
    assert_eq!(charts["Role shop/oz-operator-be-deployer"].len(), 1);
    let without = meanings(rendered(&[])?);
    assert!(!without.keys().any(|name| name.contains("composites")));
    Ok(())
}

#[test]
fn with_harness_runs_the_broker_may_do_what_tests_run_under_and_without_there_is_none() -> Result<()>
{
    let charts = meanings(rendered(&["--set=harness.enabled=true"])?);
    let mut written = Vec::new();
    for component in ["broker", "operator", "webhook"] {
        written.extend(in_rbac(&format!("harness/{component}.yaml"))?);
    }
    let written = meanings(written);
    assert_eq!(written.len(), 11);
    for (name, meaning) in &written {
        assert_eq!(Some(meaning), charts.get(name), "{name}");
    }
    let without = rendered(&[])?;
    let of_harness = |name: &str| name.contains("broker") || name.contains("harness");
    assert!(!without.iter().any(|object| of_harness(&name_of(object))));
    Ok(())
}

#[test]
fn gate_permissions_match_tests_and_exclude_pods() -> Result<()> {
    let mut written = Vec::new();
    for file in ["gate", "operator", "users"] {
        written.extend(in_rbac(&format!("gate/{file}.yaml"))?);
    }
    let charts = meanings(rendered(&["--set=gate.enabled=true"])?);
    let written = meanings(written);
    assert!(written.len() >= 6, "{written:?}");
    for (name, meaning) in &written {
        assert_eq!(Some(meaning), charts.get(name), "{name}");
    }
    for (name, meanings) in &written {
        // The operator may grant only rights that it has itself.
        let granted = name.contains("oz-operator");
        for meaning in meanings {
            let on_pods = meaning.contains("pods");
            let to_debug =
                granted && meaning.contains("\"patch\" \"\" \"pods/ephemeralcontainers\"");
            assert!(!on_pods || to_debug, "{name}: {meaning}");
        }
    }
    // Under another name it still impersonates itself.
    let named = meanings(rendered(&[
        "--set=gate.enabled=true,fullnameOverride=team-oz",
    ])?);
    let is_own = |name: &&String| name.starts_with("Role ") && name.ends_with("team-oz-gate");
    let own = named.keys().find(is_own).map(|name| &named[name]);
    let acts = |it: &String| it.contains("impersonate") && it.contains("team-oz-gate");
    assert!(own.is_some_and(|own| own.iter().any(acts)), "{own:?}");
    let without = rendered(&[])?;
    assert!(
        !without
            .iter()
            .any(|object| name_of(object).contains("gate"))
    );
    Ok(())
}

/// The original's manager reads and writes every Secret and ConfigMap, and its broker reads every Secret and may exec
/// anywhere.
#[test]
fn r33_oz_reads_secrets_and_config_maps_by_name_and_broker_may_not_exec() -> Result<()> {
    let mut own = 0;
    for object in rendered(&["--set=harness.enabled=true"])? {
        let name = name_of(&object);
        if !["Role", "ClusterRole"].contains(&object["kind"].as_str().unwrap_or_default()) {
            continue;
        }
        for permission in meaning(&object) {
            let is_about = |resource: &str| permission.contains(&format!("\"{resource}\""));
            if is_about("secrets") || is_about("configmaps") {
                let is_own = object["kind"] == "Role" && permission.contains("\"oz-");
                assert!(is_own, "{name}: {permission}");
                own += 1;
            }
            let is_broker = name.contains("broker");
            assert!(!is_broker || !is_about("pods/exec"), "{name}: {permission}");
        }
    }
    assert!(own > 10, "no right was looked at");
    Ok(())
}

#[test]
fn with_namespaces_nothing_in_other_namespaces_is_allowed() -> Result<()> {
    let everywhere = meanings(rendered(&[])?);
    let some = rendered(&["--set=access.namespaces={shop,billing}"])?;
    let some = meanings(some);
    let bound: Vec<&String> = some
        .keys()
        .filter(|name| name.contains("Binding") && name.contains("operator"))
        .collect();
    assert_eq!(
        bound.iter().filter(|it| it.contains("-access")).count(),
        2,
        "{bound:?}"
    );
    // The remaining cluster-wide rights concern no namespaced object.
    let namespaced = &some["ClusterRole oz-operator-access"];
    let left = some.get("ClusterRole oz-operator").cloned();
    let left = left.unwrap_or_default();
    assert!(left.is_disjoint(namespaced), "{left:?}");
    let all: BTreeSet<String> = left.union(namespaced).cloned().collect();
    assert_eq!(all, everywhere["ClusterRole oz-operator"]);
    for resource in ["pods/exec", "rolebindings", "transientrolebindings"] {
        let quoted = format!("\"{resource}\"");
        assert!(!left.iter().any(|it| it.contains(&quoted)), "{left:?}");
    }
    Ok(())
}

#[test]
fn no_role_has_a_wildcard_or_a_verb_that_escalates() -> Result<()> {
    for object in rendered(&[])? {
        let name = name_of(&object);
        if name.starts_with("CustomResourceDefinition") {
            continue;
        }
        for permission in meaning(&object) {
            let is_forbidden = ["\"*\"", "\"escalate\"", "\"impersonate\""];
            let is_forbidden = is_forbidden.iter().any(|it| permission.contains(it));
            assert!(!is_forbidden, "{name}: {permission}");
            // A right to `bind` is only on named roles.
            let is_bind = permission.starts_with("\"bind\"");
            assert!(!is_bind || !permission.ends_with("null"), "{name}");
        }
    }
    Ok(())
}
