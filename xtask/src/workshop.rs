//! The tasks of the crate `oz-workshop`, which depends on ozctl and the end-to-end tests: only they
//! compile it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;

/// Arguments that are passed on as they are.
#[derive(Args)]
pub(crate) struct Forwarded {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by the task `name` of the workshop, which it builds first.
pub(crate) fn run(name: &str, forwarded: &Forwarded) -> Result<ExitCode> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command
        .args(["run", "--quiet", "--manifest-path"])
        .arg(oz_testkit::repository().join("Cargo.toml"))
        .args(["--bin", "oz-workshop", "--", name])
        .args(&forwarded.arguments);
    Err(command.exec()).context("failed to run cargo")
}
