//! The plan of a composite before it is applied, by `ozctl composites plan`, and the same composite applied.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Result, ensure};
use kube::api::{ListParams, Patch, PatchParams};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, cargo_binary, eventually, scaled};
use serde_json::{Value, json};

use crate::regos::World;
use crate::support::*;

/// A policy with these children of each parent.
fn policy(names: &str) -> String {
    format!(
        r#"package controller

children contains {{
    "apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {{"name": sprintf("%v-%v", [input.parent.metadata.name, name])}},
}} if {{
    some name in {names}
}}
"#
    )
}

/// Runs the plan of a manifest as the administrator.
fn plan(world: &World, manifest: &Value) -> Result<(Option<i32>, Value)> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, manifest.to_string())?;
    let path = file.path().to_string_lossy();
    world.ozctl(&["composites", "plan", "-f", &path])
}

/// Returns the names of the children in a plan that would be deleted.
fn deleted(plan: &Value) -> BTreeSet<String> {
    let parents = plan["composites"][0]["parents"].as_array();
    let changes = parents.into_iter().flatten().flat_map(|parent| {
        let changes = parent["changes"].as_array();
        changes.into_iter().flatten()
    });
    let deleted = changes.filter(|change| change["kind"] == "delete");
    deleted
        .filter_map(|change| Some(change["name"].as_str()?.to_owned()))
        .collect()
}

#[tokio::test]
async fn plan_names_all_deletions_and_writes_nothing_and_policy_does_the_same() -> Result<()> {
    oz().await?;
    let count = scaled(30, 300);
    let world = World::set_rego("rego-plan", |rego| {
        rego["spec"]["policy"] = json!({"inline": policy(r#"["kept", "dropped"]"#)});
        rego["spec"]["limits"] = json!({"deletions": count});
    })
    .await?;
    for number in 0..count {
        let name = format!("p{number}");
        world.fleet(&name, &json!({})).await?;
    }
    let children = async || -> Result<BTreeSet<String>> {
        let list = world.config_maps().list(&ListParams::default()).await?;
        let names = list.items.into_iter().filter_map(|map| map.metadata.name);
        Ok(names.filter(|name| name.starts_with('p')).collect())
    };
    eventually("all children", CONDITION_TIMEOUT, async || {
        Ok((children().await?.len() == 2 * count).then_some(()))
    })
    .await?;

    let mut manifest = serde_json::to_value(world.composites().get(&world.name).await?)?;
    manifest["apiVersion"] = json!("crds.wizardofoz.co/v1alpha1");
    manifest["kind"] = json!("RegoController");
    let (code, unchanged) = plan(&world, &manifest)?;
    assert_eq!(code, Some(0), "{unchanged}");
    manifest["spec"]["policy"]["inline"] = json!(policy(r#"["kept"]"#));
    let mark = world.fixture.cluster.audit().mark()?;
    let (code, planned) = plan(&world, &manifest)?;
    assert_eq!(code, Some(2), "{planned}");
    assert_eq!(planned["composites"][0]["counts"]["delete"], json!(count));
    let dropped: BTreeSet<String> = (0..count)
        .map(|number| format!("p{number}-dropped"))
        .collect();
    assert_eq!(deleted(&planned), dropped);
    let entries = world.fixture.cluster.audit().since(mark)?;
    let written: Vec<_> = entries
        .writes()
        .filter(|entry| entry.user_agent.starts_with("ozctl"))
        .iter()
        .map(|entry| format!("{} {}", entry.verb, entry.resource))
        .collect();
    ensure!(written.is_empty(), "{written:?}");

    let patch = json!({"spec": {"policy": manifest["spec"]["policy"]}});
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    world
        .composites()
        .patch(&world.name, &parameters, &patch)
        .await?;
    eventually("the planned deletions", CONDITION_TIMEOUT, async || {
        let left = children().await?;
        Ok((left.len() == count && left.is_disjoint(&dropped)).then_some(()))
    })
    .await
}

/// A user who may not list the parents is told which right is missing.
#[tokio::test]
async fn plan_by_user_without_rights_names_missing_right() -> Result<()> {
    oz().await?;
    let world = World::set_rego("rego-plan-less", |_| {}).await?;
    let mut manifest = serde_json::to_value(world.composites().get(&world.name).await?)?;
    manifest["apiVersion"] = json!("crds.wizardofoz.co/v1alpha1");
    manifest["kind"] = json!("RegoController");
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, manifest.to_string())?;
    let mut command = Command::new(cargo_binary("ozctl")?);
    command
        .args(["-n", world.fixture.name(), "composites", "plan", "-f"])
        .arg(file.path())
        .env("KUBECONFIG", Cluster::shared().await?.kubeconfig("mallory"));
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    ensure!(said.contains("fleets") && said.contains("list"), "{said}");
    Ok(())
}
