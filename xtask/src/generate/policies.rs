//! The admission policies of the chart, and those that the operator checks, from `deploy/policies`, which
//! remains the only place where they are written and explained.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// The file that chart and operator read.
pub(super) const FILE: &str = "charts/oz/files/policies.json";
const SOURCE: &str = "deploy/policies";

/// Returns the text of the generated file.
pub(super) fn text(root: &Path) -> Result<String> {
    let mut policies = BTreeMap::new();
    read(&root.join(SOURCE), None, &mut policies)?;
    let policies = json!({ "policies": policies.into_values().collect::<Vec<_>>() });
    Ok(format!("{policies:#}\n"))
}

/// Reads the admission policies of a folder; those in a subfolder exist only where the feature of its name is
/// enabled.
fn read(
    folder: &Path,
    feature: Option<&str>,
    policies: &mut BTreeMap<String, Value>,
) -> Result<()> {
    for entry in std::fs::read_dir(folder).context("failed to list policies")? {
        let entry = entry?;
        let path = entry.path();
        if path.is_dir() {
            read(&path, Some(&entry.file_name().to_string_lossy()), policies)?;
            continue;
        }
        let file = path.display();
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("failed to read {file}"))?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .with_context(|| format!("failed to parse {file}"))?;
        let (name, mut policy) =
            policy(&documents).with_context(|| format!("failed to use {file}"))?;
        if let Some(feature) = feature {
            policy["feature"] = feature.into();
        }
        policies.insert(name, policy);
    }
    Ok(())
}

/// Returns an admission policy and its binding, without the parts that differ between installations.
fn policy(documents: &[Value]) -> Result<(String, Value)> {
    let [policy, binding] = documents else {
        anyhow::bail!("it has not one policy and one binding, in this order");
    };
    let name = policy["metadata"]["name"].as_str().unwrap_or_default();
    let short = name
        .strip_prefix("oz-")
        .with_context(|| format!("policy {name} does not begin with oz-"))?;
    ensure!(
        policy["kind"] == "ValidatingAdmissionPolicy"
            && binding["kind"] == "ValidatingAdmissionPolicyBinding"
            && binding["metadata"]["name"] == name
            && binding["spec"]["policyName"] == name,
        "policy and binding have the same name, and are bound to each other"
    );
    let mut bound = binding["spec"].clone();
    if let Some(bound) = bound.as_object_mut() {
        bound.remove("policyName");
    }
    let policy = json!({"name": short, "policy": policy["spec"], "binding": bound});
    Ok((short.to_owned(), policy))
}
