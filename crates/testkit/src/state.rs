//! The directory of one cluster, and its owner.
//!
//! The owner holds a lock on a file inside as long as it runs; the kernel releases the lock in any case when the owner
//! ends. A directory with a released lock belongs to a dead owner and may be removed.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::system::{Signal, signal_process};
use crate::wait::eventually;

const PREFIX: &str = "oz-cluster-";
const LOCK: &str = "owner.lock";

/// A directory that is removed, with its content, when this value is dropped.
#[derive(Debug)]
pub(crate) struct StateDirectory {
    path: PathBuf,
    /// The open file, which holds the lock.
    _lock: File,
}

impl StateDirectory {
    /// Makes a new directory under the system's temporary directory, readable by its owner only.
    /// First removes the directories of dead owners there.
    pub(crate) fn temporary() -> Result<Self> {
        sweep(&std::env::temp_dir());
        let path = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir()
            .context("failed to make a state directory")?
            .keep();
        Self::claim(path)
    }

    /// Makes the directory `path` anew: a directory of a dead owner is removed.
    ///
    /// # Errors
    ///
    /// Fails when a living process owns it.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        if is_owned(path) {
            bail!(
                "failed to take {}: a running cluster lives there",
                path.display()
            );
        }
        remove(path)?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("failed to make {}", path.display()))?;
        Self::claim(path.to_owned())
    }

    fn claim(path: PathBuf) -> Result<Self> {
        let failed = || format!("failed to lock {}", path.display());
        // The file is locked under another name first: a sweep never sees the lock file without its
        // lock.
        let unnamed = path.join("owner.lock.new");
        let mut lock = File::create(&unnamed).with_context(failed)?;
        lock.lock().with_context(failed)?;
        write!(lock, "{}", std::process::id()).with_context(failed)?;
        std::fs::rename(&unnamed, path.join(LOCK)).with_context(failed)?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!(%error, "failed to clean up");
        }
    }
}

/// Checks whether a living process owns the state directory `path`.
fn is_owned(path: &Path) -> bool {
    File::open(path.join(LOCK))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Returns the process that owns the cluster in the directory `path`, if it is alive.
#[must_use]
pub fn owner(path: &Path) -> Option<u32> {
    // Checked after reading: while the lock is held, the number is its holder's.
    let pid = std::fs::read_to_string(path.join(LOCK))
        .ok()?
        .parse()
        .ok()?;
    is_owned(path).then_some(pid)
}

/// Ends the cluster with the state directory `path`: requests its owner to end, waits until it has ended, and removes
/// the remaining files. A missing cluster is not an error.
///
/// # Errors
///
/// Fails when the owner still runs after `within`, or a file cannot be removed.
pub async fn stop(path: &Path, within: Duration) -> Result<()> {
    if let Some(pid) = owner(path) {
        signal_process(pid, Signal::Terminate)
            .with_context(|| format!("failed to ask process {pid} to end"))?;
        let what = format!("process {pid}, which owns {}, to end", path.display());
        eventually(&what, within, async || Ok((!is_owned(path)).then_some(()))).await?;
    }
    remove(path)
}

/// Removes the directory `path`; a directory that does not exist counts as removed.
///
/// # Errors
///
/// Fails when a file in it cannot be removed.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let mut last = None;
    // A process that has just been killed may still have written a file during the removal.
    for _ in 0..5 {
        match std::fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => last = Some(error),
        }
    }
    last.map_or(Ok(()), Err)
        .with_context(|| format!("failed to remove {}", path.display()))
}

/// Removes the state directories of dead owners in `directory`. A directory that cannot be read or removed belongs to
/// another user and stays.
fn sweep(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let ours = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(PREFIX));
        if ours && path.join(LOCK).exists() && !is_owned(&path) {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}
