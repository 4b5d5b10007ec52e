//! Compiles the tests, and the programs that they start, in one run of cargo: all with the same features, so
//! that no dependency is compiled twice.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::output::Tier;

/// A test binary.
#[derive(Clone, Debug)]
pub(super) struct Suite {
    /// Package and target, as in `oz-e2e, access`.
    pub(super) name: String,
    /// Cargo's name of the target, `access`.
    pub(super) target: String,
    pub(super) program: PathBuf,
    /// The directory of its package, in which it runs.
    pub(super) directory: PathBuf,
    /// The requirements of its tests, as far as its location shows them; its output shows further ones.
    pub(super) tier: Tier,
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    package_id: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The programs that tests start.
const PROGRAMS: [&str; 5] = ["oz-operator", "oz-webhook", "oz-broker", "oz-gate", "ozctl"];
/// The suites that start examples as well.
const EXAMPLES: &str = "cluster";

/// Compiles the test binaries with the names `suites`, or all of them if there are none, and all programs
/// that they start, so that no test runs cargo again. Cargo's progress is on the screen.
pub(super) fn build(suites: &[String]) -> Result<Vec<Suite>> {
    let mut cargo = cargo();
    cargo.args(["build", "--workspace"]);
    cargo.arg("--message-format=json-render-diagnostics");
    if suites.is_empty() {
        cargo.args(["--bins", "--tests", "--examples"]);
    } else {
        cargo.args(PROGRAMS.iter().flat_map(|name| ["--bin", name]));
        cargo.args(suites.iter().flat_map(|name| ["--test", name.as_str()]));
        let examples = suites.iter().any(|name| name == EXAMPLES);
        cargo.args(examples.then_some("--examples"));
    }
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .context("failed to run cargo")?;
    if !output.status.success() {
        bail!("failed to compile the tests: see above");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Vec<Suite> = text.lines().filter_map(suite).collect();
    ensure!(!found.is_empty(), "cargo compiled no test binary");
    Ok(found)
}

/// Returns the test binary to which a message of cargo refers.
fn suite(line: &str) -> Option<Suite> {
    let message: Message = serde_json::from_str(line).ok()?;
    let (target, program) = (message.target?, message.executable?);
    if message.reason != "compiler-artifact" || !message.profile?.test {
        return None;
    }
    let package = package_name(&message.package_id);
    let what = match target.kind.first().map(String::as_str) {
        Some("test") => target.name.clone(),
        Some("bin") => "unit tests of the program".to_owned(),
        _ => "unit tests".to_owned(),
    };
    Some(Suite {
        name: format!("{package}, {what}"),
        tier: if what == "recorded" {
            Tier::Recorded
        } else {
            Tier::Pure
        },
        target: target.name,
        program,
        directory: message.manifest_path.parent()?.to_owned(),
    })
}

/// Returns cargo, the one that runs this program, in the root of the workspace.
pub(super) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(oz_testkit::repository())
        .stdin(Stdio::null());
    cargo
}

/// Returns the name of a package by its id, as in `path+file:///…/crates/core#oz-core@0.1.0`; where the
/// directory has the package's name, as in `path+file:///…/xtask#0.1.0`.
fn package_name(id: &str) -> &str {
    let (path, fragment) = id.split_once('#').unwrap_or_default();
    let directory = path.rsplit('/').next().unwrap_or_default();
    fragment.split_once('@').map_or(directory, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_distinguished_from_programs() {
        let message = |kind: &str, test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "package_id": "path+file:///oz/e2e#oz-e2e@0.1.0",
                "manifest_path": "/oz/e2e/Cargo.toml",
                "target": {"name": "access", "kind": [kind], "src_path": "/oz/e2e/tests/access/main.rs"},
                "profile": {"test": test},
                "executable": "/oz/target/debug/deps/access-01",
            })
            .to_string()
        };
        let found = suite(&message("test", true)).unwrap();
        assert_eq!(found.name, "oz-e2e, access");
        assert_eq!(found.directory, PathBuf::from("/oz/e2e"));
        assert!(suite(&message("bin", false)).is_none());
        let program = suite(&message("bin", true)).unwrap();
        assert_eq!(program.name, "oz-e2e, unit tests of the program");
        assert_eq!(package_name("path+file:///oz/xtask#0.1.0"), "xtask");
    }
}
