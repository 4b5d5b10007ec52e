//! The examples of composites: the header of each names the required values of the chart.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_testkit::Cluster;
use serde_json::{Value, json};

use crate::{apply, repository};

/// The directory of the examples, from the root of the repository.
pub const EXAMPLES: &str = "examples/composites";

/// Returns the texts of the examples by name.
///
/// # Errors
/// When one cannot be read.
pub fn examples() -> Result<BTreeMap<String, String>> {
    let mut examples = BTreeMap::new();
    for entry in std::fs::read_dir(repository().join(EXAMPLES))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        examples.insert(name.into_owned(), std::fs::read_to_string(&path)?);
    }
    Ok(examples)
}

/// Returns the values that the header of an example names.
///
/// # Errors
/// When the header names no values.
pub fn example_values(text: &str) -> Result<Value> {
    let header = text.lines().map_while(|line| line.strip_prefix('#'));
    let values = header.skip_while(|line| !line.starts_with(" Values of oz's chart:"));
    let values: Vec<&str> = values.skip(1).collect();
    serde_saphyr::from_str(&values.join("\n")).context("its header names no values")
}

/// Applies an example, and gives the composites' account the permissions that its header names.
///
/// # Errors
/// When the example does not exist, or the API server does not accept it.
pub async fn install_example(cluster: &Cluster, name: &str) -> Result<()> {
    let text = examples()?.remove(name).context("no such example")?;
    let values = example_values(&text)?;
    let rules = &values["composites"]["defaultAccount"]["rules"];
    ensure!(rules.as_array().is_some_and(|rules| !rules.is_empty()));
    let role = format!("composites-example-{}", name.replace('_', "-"));
    let group = "rbac.authorization.k8s.io";
    let own = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRole",
        "metadata": {"name": role}, "rules": rules,
    });
    let bound = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "oz-composites", "namespace": "oz-system"}],
    });
    let admin = cluster.client("admin").await?;
    let ours = PatchParams::apply("test").force();
    let roles = Api::<ClusterRole>::all(admin.clone());
    roles.patch(&role, &ours, &Patch::Apply(own)).await?;
    let bindings = Api::<ClusterRoleBinding>::all(admin);
    bindings.patch(&role, &ours, &Patch::Apply(bound)).await?;
    apply(cluster, &format!("{EXAMPLES}/{name}.yaml"))?;
    Ok(())
}
