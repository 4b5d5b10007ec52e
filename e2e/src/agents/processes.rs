//! The processes of a pod's containers, as this machine sees them.

use std::fs;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;

/// A process of a container, as this machine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerProcess {
    /// The name of the container.
    pub container: String,
    /// The id of the process.
    pub pid: u32,
}

/// Returns the processes of a pod's containers.
///
/// # Errors
/// When the pod has no status.
pub fn processes(pod: &Pod) -> Result<Vec<ContainerProcess>> {
    let status = pod.status.as_ref().context("the pod has no status")?;
    let statuses = status.init_container_statuses.iter().flatten();
    let statuses = statuses.chain(status.container_statuses.iter().flatten());
    let containers: Vec<(String, String)> = statuses
        .filter_map(|status| {
            let id = status.container_id.as_ref()?.rsplit('/').next()?;
            Some((id.to_owned(), status.name.clone()))
        })
        .collect();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let group = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let container = containers
            .iter()
            .find(|(id, _)| group.contains(id.as_str()));
        found.extend(container.map(|(_, container)| ContainerProcess {
            container: container.clone(),
            pid,
        }));
    }
    Ok(found)
}
