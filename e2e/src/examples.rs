//! The examples of composites: the header of each names the required values of the chart.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_testkit::{Cluster, EXAMPLES, example_values, examples};
use serde_json::json;

use crate::apply;

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
