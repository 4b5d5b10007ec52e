//! The control group of all pods of one real node: the only trace of a node that the kernel does
//! not remove automatically. It is removed on drop, or by the next node that starts.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

const MOUNTED: &str = "/sys/fs/cgroup";
const PREFIX: &str = "oz-node-";
/// The time for which the removal of a group is retried.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);
/// The controllers that the kubelet requires in its root; version 2 delegates a controller on
/// demand only.
const CONTROLLERS: [&str; 5] = ["cpuset", "cpu", "memory", "pids", "hugetlb"];

/// A control group of every hierarchy; removed when this value is dropped.
#[derive(Debug)]
pub(super) struct ControlGroup {
    name: String,
}

impl ControlGroup {
    /// Creates the group of the node in the namespaces that the process `holder` holds, and removes the groups of
    /// holders that have ended.
    pub(super) fn create(holder: u32) -> Result<Self> {
        sweep();
        let this = Self {
            name: format!("{PREFIX}{holder}"),
        };
        for hierarchy in hierarchies() {
            for controller in CONTROLLERS {
                // Absent in version 1; the kubelet reports a missing controller.
                let control = hierarchy.join("cgroup.subtree_control");
                if control.exists() {
                    let _ = std::fs::write(control, format!("+{controller}"));
                }
            }
            let path = hierarchy.join(&this.name);
            std::fs::create_dir_all(&path)
                .with_context(|| format!("failed to make the control group {}", path.display()))?;
        }
        Ok(this)
    }

    /// Returns the path of the group within each hierarchy.
    pub(super) fn path(&self) -> String {
        format!("/{}", self.name)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for hierarchy in hierarchies() {
            remove(
                &hierarchy.join(&self.name),
                Instant::now() + REMOVAL_TIMEOUT,
            );
        }
    }
}

/// Returns the one hierarchy of version 2, or the hierarchies of version 1.
fn hierarchies() -> Vec<PathBuf> {
    let is_group = |path: &Path| path.join("cgroup.procs").is_file();
    let mounted = Path::new(MOUNTED);
    if is_group(mounted) {
        return vec![mounted.to_owned()];
    }
    // Version 1 has additional names for some as symbolic links.
    let entries = std::fs::read_dir(mounted).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .filter(|path| is_group(path))
        .collect()
}

/// Removes the groups of nodes that have ended.
fn sweep() {
    for hierarchy in hierarchies() {
        let entries = std::fs::read_dir(hierarchy).into_iter().flatten().flatten();
        for group in entries.map(|entry| entry.path()) {
            let holder = group
                .file_name()
                .and_then(|name| name.to_str()?.strip_prefix(PREFIX));
            if holder.is_some_and(|pid| !is_holder(pid)) {
                remove(&group, Instant::now() + REMOVAL_TIMEOUT);
            }
        }
    }
}

/// Checks whether the process runs and is `unshare`: process ids are reused, and a process that
/// waits to be reaped has no command.
fn is_holder(pid: &str) -> bool {
    let command = std::fs::read(Path::new("/proc").join(pid).join("cmdline")).unwrap_or_default();
    let program = command.split(|byte| *byte == 0).next();
    program.is_some_and(|program| program.ends_with(b"unshare"))
}

/// Removes the group and its subgroups. The kernel refuses while it counts a process in one of
/// them, which may last a moment after the process has ended.
fn remove(group: &Path, deadline: Instant) {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path(), deadline);
        }
    }
    loop {
        match std::fs::remove_dir(group) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%error, group = %group.display(), "failed to remove a control group");
                return;
            }
            _ => return,
        }
    }
}
