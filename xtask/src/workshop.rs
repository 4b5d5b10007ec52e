//! The tasks of the crate `oz-workshop`, which depends on ozctl and the end-to-end tests: only they
//! compile it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

/// Arguments that are passed on as they are.
#[derive(Args)]
pub(crate) struct Forwarded {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by the task `name` of the workshop, which it builds first.
pub(crate) fn run(name: &str, forwarded: &Forwarded) -> Result<ExitCode> {
    let mut command = command(name);
    command.args(&forwarded.arguments);
    Err(command.exec()).context("failed to run cargo")
}

/// Returns the standard output of the task `name`, which exits with 1 if a check fails.
pub(crate) fn output(name: &str, arguments: &[&str]) -> Result<String> {
    let mut command = command(name);
    command.args(arguments).stderr(Stdio::inherit());
    let output = command.output().context("failed to run cargo")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_result = output.status.success() || output.status.code() == Some(1) && !text.is_empty();
    ensure!(is_result, "failed to run task {name}: {}", output.status);
    Ok(text)
}

fn command(name: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["run", "--quiet", "--manifest-path"])
        .arg(oz_testkit::repository().join("Cargo.toml"))
        .args(["--bin", "oz-workshop", "--", name]);
    command
}
