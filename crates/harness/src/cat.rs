//! Output of a file of a transcript, for the pod with which `ozctl run logs` reads a run that has ended.

use std::io;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::directory::Directory;

/// Writes the file at `path`, which is absolute, to standard output.
///
/// # Errors
/// When the path contains `..` or a link, or the file does not exist or is not a regular file.
pub(crate) fn write(path: &Path) -> Result<()> {
    let whole = || format!("{} is not an absolute path of a file", path.display());
    let folder = path.parent().with_context(whole)?;
    let name = path.file_name().with_context(whole)?;
    let found = Directory::new(Path::new("/"), folder)?.read(&name.to_string_lossy())?;
    let mut file = found.with_context(|| format!("there is no file {}", path.display()))?;
    io::copy(&mut file, &mut io::stdout().lock())
        .with_context(|| format!("failed to write the content of {}", path.display()))?;
    Ok(())
}
