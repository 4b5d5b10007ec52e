//! Building the programs of the workspace that other tasks run.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

/// oz itself.
pub(crate) const OZ: [&str; 2] = ["oz-operator", "oz-webhook"];

/// `cargo`, the one that runs this program.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(oz_e2e::repository())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// The directory that this program was built into, `target` or what `CARGO_TARGET_DIR` names.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().context("failed to find this program")?;
    // target/<profile>/xtask
    let directory = program.ancestors().nth(2);
    directory
        .map(PathBuf::from)
        .context("failed to find the target directory")
}

/// Builds the programs of `packages` as the testkit does later on, which then finds them done; here
/// cargo's progress is seen. Nothing is built if the testkit is told where they are.
pub(crate) async fn build(packages: &[&str]) -> Result<()> {
    if std::env::var_os(oz_testkit::PROGRAMS).is_some() {
        return Ok(());
    }
    for package in packages {
        let mut cargo = cargo();
        cargo.arg("build");
        if cfg!(debug_assertions) {
            // As the tests, with the features of the whole workspace.
            cargo.args(["--bin", package]);
        } else {
            // As it is shipped, with its own features alone.
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

/// The path as somebody in the current directory would name it.
pub(crate) fn from_here(path: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).to_owned()
}
