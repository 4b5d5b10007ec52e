//! Files that only their owner may read, written completely or not at all.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Writes `content` to `path` with mode 0600: readers see the old content or the new, never a part.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    let failed = || format!("failed to write {}", path.display());
    let directory = path.parent().with_context(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(directory).with_context(failed)?;
    file.write_all(content).with_context(failed)?;
    file.persist(path).with_context(failed)?;
    Ok(())
}

/// Returns the directory in which this project may cache files that take long to make:
/// `$XDG_CACHE_HOME/oz`, or `~/.cache/oz`.
///
/// # Errors
///
/// Fails when neither `XDG_CACHE_HOME` nor `HOME` names an absolute path.
pub fn cache_directory() -> Result<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("oz"))
        .context("failed to find a place for the cache: set XDG_CACHE_HOME or HOME")
}

/// Returns the directory of the cluster of `cargo xtask cluster up`: `cluster` in
/// [`cache_directory`].
///
/// # Errors
///
/// As [`cache_directory`].
pub fn development_directory() -> Result<PathBuf> {
    Ok(cache_directory()?.join("cluster"))
}
