//! The Python client of Kubernetes for tests: pip installs the packages of `hack/tools/client-python/requirements.txt`,
//! by version and digest, into this project's cache.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::compile::{SCRATCH, say};
use crate::files::{cache_directory, write_private};

const REQUIREMENTS: &str = include_str!("../../../hack/tools/client-python/requirements.txt");
/// The oldest version that the packages support.
const OLDEST: (u32, u32) = (3, 11);

/// Python with its packages.
#[derive(Debug, Clone)]
pub struct Python {
    packages: PathBuf,
}

impl Python {
    /// Finds Python, and installs the packages if the cache lacks them. Returns `None` without Python or pip, after a
    /// line on standard error: the test is to be skipped. It blocks.
    ///
    /// # Errors
    ///
    /// Fails when the packages cannot be installed, and without Python if `OZ_REQUIRE_ALL` is set.
    pub fn obtain() -> Result<Option<Self>> {
        let version = match version() {
            Ok(version) => version,
            Err(lacking) if std::env::var_os("OZ_REQUIRE_ALL").is_some() => return Err(lacking),
            Err(lacking) => {
                say(&format!("skipped: {lacking:#}"));
                return Ok(None);
            }
        };
        let directory = cache_directory()?.join(format!("python-{version}"));
        let packages = directory.join("packages");
        install(&directory, &packages)?;
        Ok(Some(Self { packages }))
    }

    /// Returns the directory of the packages.
    #[must_use]
    pub fn packages(&self) -> &Path {
        &self.packages
    }

    /// Returns a command that runs a program.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("python3");
        // Without the packages of the user.
        command.arg("-s").arg(program);
        command.env("PYTHONPATH", &self.packages);
        command
    }
}

/// Returns the version of Python, such as `3.11`.
fn version() -> Result<String> {
    let lacking = "the Python client requires Python 3.11 or newer with pip (Debian: python3-pip)";
    let script = "import sys, pip; print('%d.%d' % sys.version_info[:2])";
    let output = Command::new("python3").args(["-s", "-c", script]).output();
    let output = output.context(lacking)?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let numbers = version.split_once('.').and_then(|(major, minor)| {
        let numbers = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
        Some(numbers)
    });
    match numbers {
        Some(numbers) if output.status.success() && numbers >= OLDEST => Ok(version),
        Some(_) if output.status.success() => bail!("{lacking}; python3 is {version}"),
        _ => bail!(
            "{lacking}; python3 says {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ),
    }
}

/// Installs the packages unless they are installed. Several processes may call it at once.
fn install(directory: &Path, packages: &Path) -> Result<()> {
    let failed = || {
        format!(
            "failed to install Python packages in {}",
            directory.display()
        )
    };
    let stamp = directory.join("stamp");
    let is_there = || std::fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == REQUIREMENTS);
    if is_there() {
        return Ok(());
    }
    std::fs::create_dir_all(directory).with_context(failed)?;
    let lock = File::create(directory.join("lock")).with_context(failed)?;
    lock.lock().with_context(failed)?;
    if is_there() {
        return Ok(());
    }
    say("installing the Python client of Kubernetes from PyPI, once");
    let scratch = tempfile::Builder::new()
        .prefix(SCRATCH)
        .tempdir_in(directory)
        .with_context(failed)?;
    let requirements = scratch.path().join("requirements.txt");
    std::fs::write(&requirements, REQUIREMENTS).with_context(failed)?;
    let target = scratch.path().join("packages");
    let output = Command::new("python3")
        .args(["-s", "-m", "pip", "install", "--quiet", "--no-input"])
        .args(["--disable-pip-version-check", "--root-user-action=ignore"])
        // Pinned packages only, none of which is compiled.
        .args(["--no-deps", "--require-hashes", "--only-binary=:all:"])
        .args(["--no-compile", "--target"])
        .arg(&target)
        .arg("--requirement")
        .arg(&requirements)
        .output()
        .with_context(failed)?;
    ensure!(
        output.status.success(),
        "{}: pip says {}",
        failed(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    // The stamp is removed first and written last.
    let _ = std::fs::remove_file(&stamp);
    let _ = std::fs::remove_dir_all(packages);
    std::fs::rename(&target, packages).with_context(failed)?;
    write_private(&stamp, REQUIREMENTS.as_bytes()).with_context(failed)
}
