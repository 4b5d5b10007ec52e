//! A memory limit for a process, like the limit of a container: a separate control group.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::Process;

/// The mount points of control groups, and the file with a group's limit: version 1, version 2.
const HIERARCHIES: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];

/// A control group with a memory limit; removed when this is dropped, by which time its process has
/// ended.
#[derive(Debug)]
pub struct MemoryLimit(PathBuf);

impl MemoryLimit {
    /// Limits the memory of `process`: the kernel ends it when it takes more than `bytes`. `None`
    /// if this machine does not permit new control groups.
    #[must_use]
    pub fn set(process: &Process, bytes: u64) -> Option<Self> {
        let pid = process.pid();
        let (root, file) = HIERARCHIES.into_iter().find(|(root, limit)| {
            let root = Path::new(root);
            root.join(limit).exists() || root.join("cgroup.subtree_control").exists()
        })?;
        let group = Path::new(root).join(format!("oz-memory-{pid}"));
        if let Err(error) = std::fs::create_dir(&group) {
            // A killed test left the group of a process whose number is in use again.
            (error.kind() == ErrorKind::AlreadyExists).then_some(())?;
        }
        let limit = Self(group);
        std::fs::write(limit.0.join(file), bytes.to_string()).ok()?;
        std::fs::write(limit.0.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(limit)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
