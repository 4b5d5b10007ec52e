//! The policies of the chart, and those that the operator looks for, from `deploy/policies`, which
//! stays the one place where they are written and explained.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// Where chart and operator find them.
pub(super) const FILE: &str = "charts/oz/files/policies.json";
const SOURCE: &str = "deploy/policies";

/// The generated file's text.
pub(super) fn text(root: &Path) -> Result<String> {
    let mut policies = BTreeMap::new();
    for (path, feature) in files(root)? {
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
    let policies = json!({ "policies": policies.into_values().collect::<Vec<_>>() });
    Ok(format!("{policies:#}\n"))
}

/// The files of policies; those in a folder stand only where that feature is switched on.
fn files(root: &Path) -> Result<Vec<(PathBuf, Option<String>)>> {
    let listed = |folder: &Path| -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(folder).context("failed to list policies")?;
        Ok(entries
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<_>>()?)
    };
    let mut files = Vec::new();
    for path in listed(&root.join(SOURCE))? {
        if path.is_dir() {
            let name = path.file_name().unwrap_or_default();
            let feature = name.to_string_lossy().into_owned();
            let of_feature = listed(&path)?.into_iter();
            files.extend(of_feature.map(|file| (file, Some(feature.clone()))));
        } else {
            files.push((path, None));
        }
    }
    Ok(files)
}

/// A policy and its binding, without what is different in each installation.
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
