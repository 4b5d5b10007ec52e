//! Evaluations by the `oz-rego` of another directory: a small program is compiled with it, in the same way for both
//! versions that are compared.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use xtask::programs;

/// The program, which the workspace compiles, too.
const PROGRAM: &str = include_str!("../../policy_probe/main.rs");

/// A running program, which ends with this value.
pub(super) struct Probe {
    _process: Child,
    _files: TempDir,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Probe {
    /// Compiles the program with the sources in `tree`, and starts it.
    pub(super) async fn start(
        name: &str,
        tree: &Path,
        policy: &str,
        inputs: &[Value],
    ) -> Result<Self> {
        let program = build(name, tree).await?;
        let files = tempfile::tempdir()?;
        let (policy_file, inputs_file) = (
            files.path().join("windows.rego"),
            files.path().join("inputs.json"),
        );
        std::fs::write(&policy_file, policy).context("failed to write the policy")?;
        std::fs::write(&inputs_file, serde_json::to_vec(inputs)?)
            .context("failed to write the inputs")?;
        let mut process = Command::new(&program)
            .args([policy_file, inputs_file])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("failed to start {}", program.display()))?;
        let input = process.stdin.take().context("no standard input")?;
        let output = process.stdout.take().context("no standard output")?;
        Ok(Self {
            _process: process,
            _files: files,
            input,
            output: BufReader::new(output).lines(),
        })
    }

    /// Evaluates the policy for the input at this position. Returns the time that it took.
    pub(super) async fn ask(&mut self, at: usize) -> Result<Duration> {
        self.input.write_all(format!("{at}\n").as_bytes()).await?;
        let line = self.output.next_line().await?;
        let line = line.context("the program that evaluates the policy ended: see above")?;
        Ok(Duration::from_nanos(line.parse()?))
    }
}

/// Compiles the program with the sources in `tree`, with the release profile and the dependencies of this repository and
/// of `tree`. Returns its path.
async fn build(name: &str, tree: &Path) -> Result<PathBuf> {
    let tree = std::path::absolute(tree).context("failed to find the sources")?;
    let library = tree.join("crates/rego");
    ensure!(
        library.join("Cargo.toml").is_file(),
        "{} has no crates/rego: pass a directory with the sources of another version, as `git worktree add` creates it",
        tree.display()
    );
    let target = programs::target_directory()?.join("policy-probe");
    let package = target.join(format!("package-{name}"));
    std::fs::create_dir_all(package.join("src")).context("failed to create the package")?;
    std::fs::write(package.join("src/main.rs"), PROGRAM).context("failed to write the program")?;
    let manifest = format!(
        "[package]\nname = \"oz-policy-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\noz-rego = {{ path = {library:?} }}\njiff = \"*\"\nserde_json = \"*\"\n\n{}",
        release_profile()?
    );
    std::fs::write(package.join("Cargo.toml"), manifest).context("failed to write the manifest")?;
    std::fs::copy(tree.join("Cargo.lock"), package.join("Cargo.lock"))
        .with_context(|| format!("failed to copy the Cargo.lock of {}", tree.display()))?;
    let mut cargo = programs::cargo();
    cargo.args(["build", "--release", "--manifest-path"]);
    cargo.arg(package.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&target);
    let status = cargo.status().await.context("failed to run cargo")?;
    if !status.success() {
        bail!(
            "failed to build the policy's program with {}: see above",
            tree.display()
        );
    }
    Ok(target.join("release").join(format!("oz-policy-{name}")))
}

/// Returns the section of this repository's manifest with the release profile.
fn release_profile() -> Result<String> {
    let manifest = oz_testkit::repository().join("Cargo.toml");
    let text = std::fs::read_to_string(manifest).context("failed to read the manifest")?;
    let start = text
        .find("[profile.release]")
        .context("the manifest has no release profile")?;
    let lines = text[start..].lines().enumerate();
    let lines = lines.take_while(|(at, line)| *at == 0 || !line.starts_with('['));
    let lines: Vec<&str> = lines.map(|(_, line)| line).collect();
    Ok(lines.join("\n") + "\n")
}
