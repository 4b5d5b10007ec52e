//! Builds the programs of the workspace that other tasks run.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

/// The programs of oz.
pub const OZ: [&str; 2] = ["oz-operator", "oz-webhook"];

/// Returns `cargo`, the one that runs this program.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(oz_testkit::repository())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Returns the directory into which this program was built, `target` or the value of `CARGO_TARGET_DIR`.
pub fn target_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().context("failed to find this program")?;
    // target/<profile>/<program>
    let directory = program.ancestors().nth(2);
    directory
        .map(PathBuf::from)
        .context("failed to find the target directory")
}

/// Builds the programs of `packages` in the same way as the testkit does later, which then finds them
/// complete; here cargo's progress is visible. Builds nothing if the environment gives the testkit their
/// location.
pub async fn build(packages: &[&str]) -> Result<()> {
    if std::env::var_os(oz_testkit::PROGRAMS).is_some() {
        return Ok(());
    }
    for package in packages {
        let mut cargo = cargo();
        cargo.arg("build");
        if cfg!(debug_assertions) {
            // As the tests do, with the features of the whole workspace.
            cargo.args(["--bin", package]);
        } else {
            // As it is released, with its own features alone.
            cargo.args(["--release", "--bins", "--package", package]);
        }
        cargo.arg("--target-dir").arg(target_directory()?);
        let status = cargo.status().await.context("failed to run cargo")?;
        if !status.success() {
            bail!("failed to build {package}: see above");
        }
    }
    Ok(())
}

/// Returns the path relative to the current directory.
pub fn from_here(path: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).to_owned()
}
