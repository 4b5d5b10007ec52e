//! A file of a transcript, written out: for the pod by which `ozctl run logs` reads a run that is over.

use std::io;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::directory::Directory;

/// Writes the file at `path`, which is absolute, to standard output.
///
/// # Errors
/// A path with `..`, one with a link in it, what is no plain file, and a file that is not there.
pub(crate) fn write(path: &Path) -> Result<()> {
    let whole = || format!("{} is no whole path of a file", path.display());
    let folder = path.parent().with_context(whole)?;
    let name = path.file_name().with_context(whole)?;
    let found = Directory::new(Path::new("/"), folder)?.read(&name.to_string_lossy())?;
    let mut file = found.with_context(|| format!("there is no file {}", path.display()))?;
    io::copy(&mut file, &mut io::stdout().lock())
        .with_context(|| format!("failed to write {} out", path.display()))?;
    Ok(())
}
