//! The rules of the chart's roles, from `deploy/rbac`, which remains the only place where they are written
//! and explained. The chart cannot read files outside of itself, and gives the same rules other names and,
//! where access is for some namespaces only, other bindings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use serde::Serialize;
use serde_json::Value;

/// The directory that the chart reads.
pub(super) const FILES: &str = "charts/oz/files/rbac";
const SOURCE: &str = "deploy/rbac";
const HEADER: &str = "# Generated from deploy/rbac by `cargo xtask generate`; do not edit.\n";
/// Kubernetes' own cluster-scoped resources, as far as an operator may need them.
const CLUSTER_SCOPED: [&str; 16] = [
    "apiservices",
    "clusterrolebindings",
    "clusterroles",
    "customresourcedefinitions",
    "mutatingwebhookconfigurations",
    "namespaces",
    "nodes",
    "persistentvolumes",
    "priorityclasses",
    "selfsubjectaccessreviews",
    "subjectaccessreviews",
    "tokenreviews",
    "userextras",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
];

/// The permissions of one process of oz.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Permissions {
    /// Permissions on cluster-scoped resources: only a ClusterRoleBinding gives them.
    cluster: Vec<PolicyRule>,
    /// Permissions on namespaced resources: in all namespaces, or in those where access is given.
    namespaced: Vec<PolicyRule>,
    /// Permissions on namespaced resources, for dedicated pods.
    pods: Vec<PolicyRule>,
    /// Permissions on Roles with reserved names, where an admission policy blocks others from these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    role_names: Vec<PolicyRule>,
    /// Permissions in the namespace of oz.
    own: Vec<PolicyRule>,
}

/// Additional permissions of the operator, if a part of oz is enabled.
#[derive(Debug, Default, PartialEq, Serialize)]
struct SwitchedOn {
    rules: Vec<PolicyRule>,
    /// Permissions in the namespace of oz.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    own: Vec<PolicyRule>,
}

/// A role for users.
#[derive(Debug, Serialize)]
struct UserRole {
    /// ClusterRole, or Role for one in the namespace of oz.
    kind: String,
    /// The suffix after the name of the installation.
    name: String,
    /// The labels by which other roles aggregate it.
    labels: BTreeMap<String, String>,
    rules: Vec<PolicyRule>,
}

/// Returns the generated files: their paths from the root of the repository, and their texts.
pub(super) fn files(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    for component in ["operator", "webhook"] {
        let file = format!("{component}.yaml");
        let mut documents = documents(root, &file)?;
        if component == "operator" {
            documents.extend(self::documents(root, "operator-pods.yaml")?);
            documents.extend(self::documents(root, "operator-role-names.yaml")?);
        }
        let permissions = permissions(&format!("oz-{component}"), &documents)
            .with_context(|| format!("failed to read the roles in {SOURCE}/{file}"))?;
        files.insert(Path::new(FILES).join(&file), text(&permissions)?);
    }
    let mut broker = documents(root, "harness/broker.yaml")?;
    broker.retain(|document| document["kind"] != "Secret");
    let broker = permissions("oz-broker", &broker).context("failed to read the broker's roles")?;
    files.insert(Path::new(FILES).join("broker.yaml"), text(&broker)?);
    let mut gate = documents(root, "gate/gate.yaml")?;
    gate.retain(|document| document["kind"] != "Secret");
    let gate = permissions("oz-gate", &gate).context("failed to read the gate's roles")?;
    files.insert(Path::new(FILES).join("gate.yaml"), text(&gate)?);
    for part in ["transient", "impersonate", "composites", "harness"] {
        let part_of = documents(root, &format!("{part}/operator.yaml"))?;
        let permissions = switched_on(part, &part_of)?;
        files.insert(
            Path::new(FILES).join(format!("{part}.yaml")),
            text(&permissions)?,
        );
    }
    let webhook = switched_on("harness", &documents(root, "harness/webhook.yaml")?)?;
    files.insert(
        Path::new(FILES).join("harness-webhook.yaml"),
        text(&webhook)?,
    );
    let gate = switched_on("gate", &documents(root, "gate/operator.yaml")?)?;
    files.insert(Path::new(FILES).join("gate-operator.yaml"), text(&gate)?);
    let users = users(&documents(root, "users.yaml")?)?;
    let users = BTreeMap::from([("roles", users)]);
    files.insert(Path::new(FILES).join("users.yaml"), text(&users)?);
    Ok(files)
}

fn text(value: &impl Serialize) -> Result<String> {
    let yaml = serde_saphyr::to_string(value).context("failed to write rules as YAML")?;
    Ok(format!("{HEADER}{yaml}"))
}

fn documents(root: &Path, file: &str) -> Result<Vec<Value>> {
    let path = root.join(SOURCE).join(file);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("failed to read {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("failed to parse {SOURCE}/{file}"))
}

fn permissions(name: &str, documents: &[Value]) -> Result<Permissions> {
    let cluster_scoped = cluster_scoped();
    let mut permissions = Permissions::default();
    for document in documents {
        let is_ours = document["metadata"]["name"] == name;
        match document["kind"].as_str().unwrap_or_default() {
            "ClusterRole" if is_ours => {
                let role: ClusterRole = serde_json::from_value(document.clone())?;
                for rule in role.rules.unwrap_or_default() {
                    let (cluster, namespaced) = split(rule, &cluster_scoped);
                    permissions.cluster.extend(cluster);
                    permissions.namespaced.extend(namespaced);
                }
            }
            "ClusterRole" if document["metadata"]["name"] == format!("{name}-pods") => {
                let role: ClusterRole = serde_json::from_value(document.clone())?;
                permissions.pods.extend(role.rules.unwrap_or_default());
            }
            "ClusterRole" if document["metadata"]["name"] == format!("{name}-role-names") => {
                let role: ClusterRole = serde_json::from_value(document.clone())?;
                permissions
                    .role_names
                    .extend(role.rules.unwrap_or_default());
            }
            "Role" if is_ours => {
                let role: Role = serde_json::from_value(document.clone())?;
                permissions.own.extend(role.rules.unwrap_or_default());
            }
            // A test compares these with the rendered chart.
            "ServiceAccount" | "ClusterRoleBinding" | "RoleBinding" => {}
            kind => bail!(
                "{kind} {} is nothing that the chart knows: put the rule into ClusterRole or Role \
                 {name}, or teach xtask/src/generate/rbac.rs and the chart",
                document["metadata"]["name"]
            ),
        }
    }
    Ok(permissions)
}

/// Returns the permissions of the operator if this part of oz is enabled, without the roles that it may bind:
/// those are values of the chart.
fn switched_on(part: &str, documents: &[Value]) -> Result<SwitchedOn> {
    let mut found = SwitchedOn::default();
    for document in documents {
        let kind = document["kind"].as_str().unwrap_or_default();
        let failed = || format!("failed to read a {kind} of {SOURCE}/{part}");
        match kind {
            "ClusterRole" => {
                let role: ClusterRole =
                    serde_json::from_value(document.clone()).with_context(failed)?;
                found.rules.extend(role.rules.unwrap_or_default());
            }
            "Role" => {
                let role: Role = serde_json::from_value(document.clone()).with_context(failed)?;
                found.own.extend(role.rules.unwrap_or_default());
            }
            _ => {}
        }
    }
    found.rules.retain(|rule| rule.verbs != ["bind"]);
    Ok(found)
}

fn users(documents: &[Value]) -> Result<Vec<UserRole>> {
    documents
        .iter()
        .map(|document| {
            let failed = || format!("failed to read a role of {SOURCE}/users.yaml");
            let kind = document["kind"].as_str().unwrap_or_default().to_owned();
            let (metadata, rules) = if kind == "Role" {
                let role: Role = serde_json::from_value(document.clone()).with_context(failed)?;
                (role.metadata, role.rules)
            } else {
                let role: ClusterRole =
                    serde_json::from_value(document.clone()).with_context(failed)?;
                (role.metadata, role.rules)
            };
            let name = metadata.name.unwrap_or_default();
            let suffix = name
                .strip_prefix("oz-")
                .with_context(|| format!("failed to name role {name}: it begins with oz-"))?;
            let labels = metadata.labels.unwrap_or_default().into_iter();
            Ok(UserRole {
                kind,
                name: suffix.to_owned(),
                labels: labels
                    .filter(|(label, _)| label.contains("/aggregate-to-"))
                    .collect(),
                rules: rules.unwrap_or_default(),
            })
        })
        .collect()
}

/// Splits a rule into a part on cluster-scoped resources, and the rest.
fn split(
    rule: PolicyRule,
    cluster_scoped: &BTreeSet<String>,
) -> (Option<PolicyRule>, Option<PolicyRule>) {
    let resources = rule.resources.clone().unwrap_or_default();
    let (cluster, namespaced): (Vec<String>, Vec<String>) = resources
        .into_iter()
        .partition(|it| cluster_scoped.contains(it.split('/').next().unwrap_or(it)));
    let part = |resources: Vec<String>| {
        (!resources.is_empty()).then(|| PolicyRule {
            resources: Some(resources),
            ..rule.clone()
        })
    };
    (part(cluster), part(namespaced))
}

fn cluster_scoped() -> BTreeSet<String> {
    let ours = oz_core::kinds::all().into_iter();
    let ours = ours.filter(|kind| !kind.namespaced);
    let ours = ours.map(|kind| kind.resource.plural);
    ours.chain(CLUSTER_SCOPED.map(ToOwned::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(kind: &str, rules: &Value) -> Value {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
               "metadata": {"name": "oz-operator"}, "rules": rules})
    }

    #[test]
    fn a_rule_is_given_in_namespaces_unless_it_is_on_what_has_none() {
        let rules = json!([
            {"apiGroups": [""], "resources": ["namespaces", "pods", "pods/exec"], "verbs": ["get"]},
        ]);
        let found = permissions("oz-operator", &[role("ClusterRole", &rules)]).unwrap();
        let resources = |rules: &[PolicyRule]| rules[0].resources.clone().unwrap();
        assert_eq!(resources(&found.cluster), ["namespaces"]);
        assert_eq!(resources(&found.namespaced), ["pods", "pods/exec"]);
        assert!(found.own.is_empty());
    }

    #[test]
    fn permissions_in_own_namespace_stay_there() {
        let rules = json!([{"apiGroups": [""], "resources": ["serviceaccounts"],
                            "resourceNames": ["a"], "verbs": ["impersonate"]}]);
        let found = switched_on("part", &[role("Role", &rules)]).unwrap();
        assert!(found.rules.is_empty());
        assert_eq!(found.own[0].verbs, ["impersonate"]);
    }

    #[test]
    fn role_that_chart_would_omit_is_rejected() {
        let mut other = role("ClusterRole", &json!([]));
        other["metadata"]["name"] = json!("oz-something");
        assert!(permissions("oz-operator", &[other]).is_err());
    }
}
