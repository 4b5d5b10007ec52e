//! How much memory a process may have, as a container's limit says it: a control group of its own.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::Process;

/// Where control groups are mounted, and the file with a group's limit: version 1, version 2.
const HIERARCHIES: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];

/// A control group with a limit of memory; removed when this is dropped, by when its process is gone.
#[derive(Debug)]
pub struct MemoryLimit(PathBuf);

impl MemoryLimit {
    /// Has the kernel end `process` when it takes more than so many bytes. `None` where this machine
    /// lets nobody make such groups.
    #[must_use]
    pub fn set(process: &Process, bytes: u64) -> Option<Self> {
        let pid = process.pid();
        let (root, file) = HIERARCHIES.into_iter().find(|(root, limit)| {
            let root = Path::new(root);
            root.join(limit).exists() || root.join("cgroup.subtree_control").exists()
        })?;
        let group = Path::new(root).join(format!("oz-memory-{pid}"));
        if let Err(error) = std::fs::create_dir(&group) {
            // Whoever was killed left the group of a process, whose number comes again.
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
