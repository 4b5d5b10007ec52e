//! The tiers of `.ci/run`, with stubs of make and cargo that record their arguments.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result};

/// The commands of all tiers, in the order in which they start, without those that run in parallel.
const IN_ORDER: [&str; 6] = [
    "make test",
    "make e2e-node",
    "make guides",
    "cargo xtask permissions",
    "make demo",
    "cargo xtask bench soak --quick --unoptimised",
];
/// The commands of the tiers that run in parallel to others.
const PARALLEL: [&str; 2] = ["make check", "make fuzz"];

/// The result of a run: the exit code, the standard error, and the recorded commands.
struct Run {
    code: Option<i32>,
    error: String,
    commands: Vec<String>,
}

impl Run {
    /// Returns the recorded commands that belong to tiers.
    fn tiers(&self) -> Vec<&str> {
        let all = IN_ORDER.iter().chain(&PARALLEL);
        let is_tier = |command: &&String| all.clone().any(|tier| tier == command);
        let tiers = self.commands.iter().filter(is_tier);
        tiers.map(String::as_str).collect()
    }
}

/// Runs `.ci/run` with these names of tiers. The command `failing` ends with 1.
fn run(tiers: &[&str], failing: &str) -> Result<Run> {
    let directory = tempfile::tempdir()?;
    let programs = directory.path().join("bin");
    let commands = directory.path().join("commands");
    fs::create_dir(&programs)?;
    let script = format!(
        "#!/bin/sh\nline=\"${{0##*/}} $*\"\necho \"$line\" >> '{}'\n[ \"$line\" != '{failing}' ]\n",
        commands.display()
    );
    for name in ["make", "cargo", "rustc", "rustup", "go", "sudo", "apt-get"] {
        add(&programs.join(name), &script)?;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let output: Output = Command::new("bash")
        .arg(oz_testkit::repository().join(".ci/run"))
        .args(tiers)
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("XDG_CACHE_HOME", directory.path().join("cache"))
        .env("CARGO_TARGET_DIR", directory.path().join("target"))
        .stdin(Stdio::null())
        .output()
        .context("failed to run bash")?;
    let recorded = match fs::read_to_string(&commands) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        recorded => recorded?,
    };
    Ok(Run {
        code: output.status.code(),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
        commands: recorded.lines().map(ToOwned::to_owned).collect(),
    })
}

/// Writes an executable file.
fn add(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[test]
fn ci_without_arguments_runs_every_tier() -> Result<()> {
    let run = run(&[], "")?;
    let mut in_order = run.tiers();
    in_order.retain(|command| !PARALLEL.contains(command));
    assert_eq!(in_order, IN_ORDER, "{}", run.error);
    for command in PARALLEL {
        assert!(run.tiers().contains(&command), "{command}");
    }
    assert_eq!(run.code, Some(0), "{}", run.error);
    Ok(())
}

#[test]
fn ci_with_names_runs_these_tiers_only() -> Result<()> {
    for (names, expected) in [
        (&["prepare"][..], &[][..]),
        (&["demo"], &["make demo"]),
        (&["check"], &["make check"]),
        (
            &["roles", "node", "test"],
            &["make test", "make e2e-node", "cargo xtask permissions"],
        ),
    ] {
        let run = run(names, "")?;
        assert_eq!(run.tiers(), expected, "{names:?}");
        assert_eq!(run.code, Some(0), "{names:?}: {}", run.error);
    }
    Ok(())
}

#[test]
fn failed_tier_decides_exit_code_and_next_tier_runs() -> Result<()> {
    for (names, failing) in [
        (&["test", "demo"][..], "make test"),
        (&["check", "demo"], "make check"),
        (&[], "make guides"),
    ] {
        let run = run(names, failing)?;
        assert_eq!(run.code, Some(1), "{names:?}: {}", run.error);
        assert!(run.tiers().contains(&"make demo"), "{names:?}");
    }
    Ok(())
}

#[test]
fn unknown_tier_is_refused_before_any_command() -> Result<()> {
    let run = run(&["test", "tests"], "")?;
    assert_eq!(run.code, Some(2));
    assert!(
        run.error
            .contains("unknown tier tests; the tiers are: test check")
    );
    assert_eq!(run.commands, [""; 0]);
    Ok(())
}
