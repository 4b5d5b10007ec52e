//! Files of the repository that are generated from its sources: written, or compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;

/// The treatment of stale files.
#[derive(Args)]
pub struct Options {
    /// Print their names and exit with 1, instead of writing them.
    #[arg(long)]
    check: bool,
}

/// Writes the stale ones of `files`, which are texts by their path from `root`, and removes the files of
/// `directories` that are not generated; or prints the names of both. Returns whether there were any.
///
/// # Errors
/// When a file or directory cannot be read or written.
pub fn update(
    root: &Path,
    files: &BTreeMap<PathBuf, String>,
    directories: &[&str],
    options: &Options,
) -> Result<bool> {
    let stale = stale(root, files, directories)?;
    for path in &stale {
        if options.check {
            print(&format!("stale: {}; run `make generate`\n", path.display()))?;
        } else {
            write(&root.join(path), files.get(path))
                .with_context(|| format!("failed to update {}", path.display()))?;
            print(&format!("updated {}\n", path.display()))?;
        }
    }
    Ok(!stale.is_empty())
}

/// Returns the exit code of a command after [`update`].
#[must_use]
pub fn exit_code(options: &Options, any_stale: bool) -> ExitCode {
    ExitCode::from(u8::from(options.check && any_stale))
}

/// Returns the files that are missing or different, and those in generated directories that nothing
/// generates.
///
/// # Errors
/// When a directory cannot be listed.
pub fn stale(
    root: &Path,
    files: &BTreeMap<PathBuf, String>,
    directories: &[&str],
) -> Result<BTreeSet<PathBuf>> {
    let differs = |(path, text): &(&PathBuf, &String)| {
        fs::read_to_string(root.join(path)).ok().as_ref() != Some(*text)
    };
    let differing = files.iter().filter(differs);
    let mut stale: BTreeSet<PathBuf> = differing.map(|(path, _)| path.clone()).collect();
    for name in directories {
        let directory = match fs::read_dir(root.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            directory => directory.with_context(|| format!("failed to list {name}"))?,
        };
        for entry in directory {
            let path = Path::new(name).join(entry?.file_name());
            if !files.contains_key(&path) {
                stale.insert(path);
            }
        }
    }
    Ok(stale)
}

fn write(path: &Path, text: Option<&String>) -> io::Result<()> {
    let Some(text) = text else {
        return fs::remove_file(path);
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text)
}

fn print(text: &str) -> Result<()> {
    io::stdout()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")
}
