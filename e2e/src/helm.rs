//! Helm, for the chart of this repository on a cluster.

use std::process::Command;

use anyhow::Result;
use oz_testkit::{Cluster, Tool, Tools};

use crate::{NAMESPACE, repository};

/// helm as the administrator of `cluster`, in oz's namespace.
///
/// # Errors
/// When it cannot be compiled.
pub fn helm(cluster: &Cluster) -> Result<Command> {
    let tools = Tools::obtain(&[Tool::Helm])?;
    let mut command = Command::new(tools.path(Tool::Helm)?);
    command
        .env("KUBECONFIG", cluster.kubeconfig("admin"))
        .env("HELM_CACHE_HOME", cluster.state_dir().join("helm"))
        .arg(format!("--namespace={NAMESPACE}"));
    Ok(command)
}

/// Where the chart is.
#[must_use]
pub fn chart() -> String {
    repository().join("charts/oz").display().to_string()
}
