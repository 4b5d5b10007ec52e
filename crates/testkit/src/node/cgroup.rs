//! The control group that all pods of one real node are in. The one trace of a node that the kernel
//! does not remove by itself: done on drop, or by the next node that starts.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

const MOUNTED: &str = "/sys/fs/cgroup";
const PREFIX: &str = "oz-node-";
/// How long a group is tried to be removed.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);
/// What the kubelet wants to find in its root; version 2 hands a controller down on demand only.
const CONTROLLERS: [&str; 5] = ["cpuset", "cpu", "memory", "pids", "hugetlb"];

/// A control group of every hierarchy; removed when this value is dropped.
#[derive(Debug)]
pub(super) struct ControlGroup {
    name: String,
}

impl ControlGroup {
    /// Makes the group of the node whose namespaces the process `holder` holds, and removes those
    /// whose holders are gone.
    pub(super) fn create(holder: u32) -> Result<Self> {
        sweep();
        let this = Self {
            name: format!("{PREFIX}{holder}"),
        };
        for hierarchy in hierarchies() {
            for controller in CONTROLLERS {
                // Absent in version 1; a controller that is missing is the kubelet's to complain of.
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

    /// Its path within each hierarchy.
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

/// The one hierarchy of version 2, or those of version 1.
fn hierarchies() -> Vec<PathBuf> {
    let is_group = |path: &Path| path.join("cgroup.procs").is_file();
    let mounted = Path::new(MOUNTED);
    if is_group(mounted) {
        return vec![mounted.to_owned()];
    }
    // Version 1 has further names for some as symbolic links.
    let entries = std::fs::read_dir(mounted).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .filter(|path| is_group(path))
        .collect()
}

/// Removes the groups of nodes that are gone.
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

/// Whether the process runs and is `unshare`: numbers are used again, and one that waits to be reaped
/// has no command.
fn is_holder(pid: &str) -> bool {
    let command = std::fs::read(Path::new("/proc").join(pid).join("cmdline")).unwrap_or_default();
    let program = command.split(|byte| *byte == 0).next();
    program.is_some_and(|program| program.ends_with(b"unshare"))
}

/// Removes the group with those below it. The kernel refuses while it counts a process in one, which
/// it may for a moment after the process has ended.
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
