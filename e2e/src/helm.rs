//! Helm for the chart of this repository on a cluster, the image that its pods run, and the files of a release.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use oz_testkit::{Cluster, Tool, Tools};

use crate::{NAMESPACE, repository, run};

/// The option for an image of tests: it is built quickly, and is large and slow.
const QUICK: &str = "--profile=quick";

/// Returns helm as the administrator of `cluster`, in oz's namespace.
///
/// # Errors
/// When helm cannot be compiled.
pub fn helm(cluster: &Cluster) -> Result<Command> {
    let tools = Tools::obtain(&[Tool::Helm])?;
    let mut command = Command::new(tools.path(Tool::Helm)?);
    command
        .env("KUBECONFIG", cluster.kubeconfig("admin"))
        .env("HELM_CACHE_HOME", cluster.state_dir().join("helm"))
        .arg(format!("--namespace={NAMESPACE}"));
    Ok(command)
}

/// Returns the path of the chart.
#[must_use]
pub fn chart() -> String {
    repository().join("charts/oz").display().to_string()
}

/// Returns the archive of the image: the one that `OZ_IMAGE` names, or one for tests, made of the current
/// content of the repository.
///
/// # Errors
/// When the image cannot be made.
pub fn image_archive() -> Result<PathBuf> {
    archive("OZ_IMAGE", &[QUICK])
}

/// Returns the archive of the image of oz's container in the pods of runs, like [`image_archive`]:
/// `OZ_HARNESS_IMAGE` names one.
///
/// # Errors
/// When the image cannot be made.
pub fn harness_image_archive() -> Result<PathBuf> {
    archive("OZ_HARNESS_IMAGE", &["--harness", QUICK])
}

/// Returns the archive of [`harness_image_archive`] as a release has it, for measurements.
///
/// # Errors
/// When the image cannot be made.
pub fn released_harness_image_archive() -> Result<PathBuf> {
    archive("OZ_HARNESS_IMAGE", &["--harness"])
}

/// Returns the directory with the files of a release of this version, made of the current content of the repository.
/// The programs are those of [`image_archive`]; the chart and `install.yaml` refer to images in `repository`.
///
/// # Errors
/// When a file cannot be made.
pub fn rehearsed_release(repository: &str) -> Result<PathBuf> {
    let registry = format!("--registry={repository}");
    let release = ["release", env!("CARGO_PKG_VERSION"), QUICK, &registry];
    made(&release, "files ")
}

fn archive(variable: &str, flags: &[&str]) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    made(&[&["image"], flags].concat(), "archive ")
}

/// Runs a task of the workspace, and returns the path that its output contains after `key`.
fn made(task: &[&str], key: &str) -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(repository())
        .arg("xtask")
        .args(task)
        .stdin(Stdio::null());
    let said = run(cargo)?;
    let path = said
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .with_context(|| format!("the output of {task:?} has no line {key:?}: {said}"))?;
    Ok(repository().join(path.trim()))
}
