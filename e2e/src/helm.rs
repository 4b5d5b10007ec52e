//! Helm for the chart of this repository on a cluster, and the image that its pods run.

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

fn archive(variable: &str, flags: &[&str]) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(repository())
        .args(["xtask", "image"])
        .args(flags)
        .stdin(Stdio::null());
    let said = run(cargo)?;
    let path = said
        .lines()
        .find_map(|line| line.strip_prefix("archive "))
        .with_context(|| format!("there is no archive: {said}"))?;
    Ok(repository().join(path.trim()))
}
