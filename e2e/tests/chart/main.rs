//! The chart: its rendering, its rights, which are exactly those of `deploy/rbac`, and its acceptance by the API
//! server.
//! A real node shows that it works (`e2e/tests/node/chart.rs`).

mod by_hand;
mod configuration;
mod egress;
mod images;
mod install;
mod metrics;
mod narrowed;
mod outlived;
mod permissions;
mod render;
mod schemas;
mod security;
mod uninstall;
mod upgrade;
mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result};
use oz_config::{CONFIG_MAP_SUFFIX, KEY};
use oz_e2e::{repository, run};
use oz_testkit::{Cluster, Tool, Tools};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// The turn of an installation: a cluster has one oz.
static TURN: Mutex<()> = Mutex::const_new(());

fn chart() -> PathBuf {
    repository().join("charts/oz")
}

/// Returns helm, for a chart and no cluster unless a kubeconfig is given.
fn helm() -> Result<Command> {
    let tools = Tools::obtain(&Tool::CHART)?;
    let mut command = Command::new(tools.path(Tool::Helm)?);
    command.env_remove("KUBECONFIG");
    Ok(command)
}

/// Runs `helm template` with these flags and returns its output.
fn template(flags: &[&str]) -> Result<Output> {
    let mut command = helm()?;
    command
        .args(["template", "oz", "--namespace=oz-system"])
        .arg(chart())
        .args(flags);
    command.output().context("failed to run helm")
}

/// Returns the objects of the chart with these flags. Many tests use the same objects, and helm takes a second of a
/// processor each time.
fn rendered(flags: &[&str]) -> Result<Vec<Value>> {
    static RENDERED: parking_lot::Mutex<BTreeMap<Vec<String>, Vec<Value>>> =
        parking_lot::Mutex::new(BTreeMap::new());
    let rendered = || RENDERED.lock();
    let key: Vec<String> = flags.iter().map(ToString::to_string).collect();
    let known = rendered().get(&key).cloned();
    if let Some(objects) = known {
        return Ok(objects);
    }
    let objects = render(flags)?;
    rendered().insert(key, objects.clone());
    Ok(objects)
}

fn render(flags: &[&str]) -> Result<Vec<Value>> {
    let output = template(flags)?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success(),
        "failed to render with {flags:?}: {said}"
    );
    let text = String::from_utf8(output.stdout)?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

/// Returns the text of the configuration among the objects of an installation.
fn configuration_text(objects: &[Value]) -> Result<String> {
    let is_it = |object: &&Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        object["kind"] == "ConfigMap" && name.ends_with(CONFIG_MAP_SUFFIX)
    };
    let found = objects.iter().find(is_it).context("no configuration")?;
    let text = found["data"][KEY].as_str().context("it has no text")?;
    Ok(text.to_owned())
}

/// Runs kubectl's `verb` with these objects, as the administrator.
fn kubectl(cluster: &Cluster, verb: &[&str], objects: &[Value]) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("objects.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&file, serde_json::to_vec(&list)?)?;
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args(verb).arg("-f").arg(file);
    run(kubectl).map(drop)
}

/// Returns the kind and the name of an object, with its namespace if that is not oz-system.
fn name_of(object: &Value) -> String {
    let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    match part(&metadata["namespace"]).as_str() {
        "" | "oz-system" => format!("{} {}", part(&object["kind"]), part(&metadata["name"])),
        other => format!(
            "{} {other}/{}",
            part(&object["kind"]),
            part(&metadata["name"])
        ),
    }
}

/// Returns the files of values that the chart is tested with: name and path.
fn value_files() -> Result<Vec<(String, PathBuf)>> {
    let directory = repository().join("e2e/tests/chart/values");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_stem().context("no name")?.to_string_lossy();
        files.push((name.into_owned(), path.clone()));
    }
    files.sort();
    anyhow::ensure!(files.len() >= 12, "only {} files of values", files.len());
    Ok(files)
}
