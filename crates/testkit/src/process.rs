//! Programs of this workspace as child processes of a test: started, watched, killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use parking_lot::Mutex;

use crate::spawn::{Running, spawn};
use crate::system::Signal;
use crate::wait::eventually;

/// A running program with its output in files. It is killed on drop, with all processes in its process group, and ends
/// with this process in any case.
#[derive(Debug)]
pub struct Process {
    name: String,
    running: Running,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// Returns the resident memory of a process, in KiB.
///
/// # Errors
///
/// Fails when there is no such process.
pub fn resident_memory(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kibibytes.context("no VmRSS")?.parse()?)
}

impl Process {
    /// Starts `command` (its arguments and environment are the caller's) with its output in
    /// `<name>-<number>.out` and `.err` in the directory `logs`.
    ///
    /// # Errors
    ///
    /// Fails when the program or its log files cannot be opened.
    pub fn spawn(name: &str, logs: &Path, mut command: Command) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let failed = || format!("failed to start {name}");
        // A program that is started again has its own files.
        let stem = format!("{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let stdout = logs.join(format!("{stem}.out"));
        let stderr = logs.join(format!("{stem}.err"));
        command
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).with_context(failed)?)
            .stderr(File::create(&stderr).with_context(failed)?);
        let running = spawn(command, Signal::Kill).with_context(failed)?;
        Ok(Self {
            name: name.to_owned(),
            running,
            stdout,
            stderr,
        })
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Returns the file with the standard output of the program.
    #[must_use]
    pub fn stdout(&self) -> &Path {
        &self.stdout
    }

    /// Returns the file with the standard error of the program.
    #[must_use]
    pub fn stderr(&self) -> &Path {
        &self.stderr
    }

    /// Returns the whole lines on standard output so far.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be read.
    pub fn lines(&self) -> Result<Vec<String>> {
        whole_lines(&self.stdout)
    }

    /// Returns the exit status of the program, or `None` while it runs.
    ///
    /// # Errors
    ///
    /// Fails when the system does not report the status.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.running
            .exited()
            .with_context(|| format!("failed to look after {}", self.name))
    }

    /// Waits for the first whole line on standard output or standard error for which `wanted`
    /// returns true. `what` completes the sentence "waited for …".
    ///
    /// # Errors
    ///
    /// Fails when `within` has passed or the program has ended without such a line; the message ends
    /// with its last output.
    pub async fn wait_for_line(
        &mut self,
        what: &str,
        within: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let found = eventually(&format!("{what} from {}", self.name), within, async || {
            // Before the files: lines that are written before the end are read below.
            let exited = self.exited()?;
            for file in [&self.stdout, &self.stderr] {
                if let Some(line) = whole_lines(file)?.into_iter().find(|line| wanted(line)) {
                    return Ok(Some(Ok(line)));
                }
            }
            Ok(exited.map(|status| Err(anyhow!("{} ended with {status}", self.name))))
        })
        .await
        .flatten();
        found.with_context(|| format!("the last output of {} was:\n{}", self.name, self.tail()))
    }

    /// Kills the program without warning (SIGKILL), like a failing node, and reaps it.
    pub fn kill9(&mut self) {
        self.running.kill();
    }

    /// Requests the program to end (SIGTERM), and does not wait for it.
    ///
    /// # Errors
    ///
    /// Fails when the signal cannot be sent.
    pub fn ask_to_end(&mut self) -> Result<()> {
        let asked = self.running.signal(Signal::Terminate);
        asked.with_context(|| format!("failed to ask {} to end", self.name))
    }

    /// Requests the program to end (SIGTERM) and waits until it has ended.
    ///
    /// # Errors
    ///
    /// Fails when it still runs after `within`.
    pub async fn terminate(&mut self, within: Duration) -> Result<ExitStatus> {
        self.ask_to_end()?;
        eventually(&format!("{} to end", self.name), within, async || {
            self.exited()
        })
        .await
    }

    fn tail(&self) -> String {
        const LINES: usize = 15;
        let mut tail = Vec::new();
        for file in [&self.stdout, &self.stderr] {
            let lines = whole_lines(file).unwrap_or_default();
            tail.extend_from_slice(
                lines
                    .get(lines.len().saturating_sub(LINES)..)
                    .unwrap_or(&[]),
            );
        }
        tail.join("\n")
    }
}

fn whole_lines(path: &Path) -> Result<Vec<String>> {
    let bytes =
        std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    let whole = text
        .rfind('\n')
        .map_or("", |end| text.get(..end).unwrap_or_default());
    Ok(whole.lines().map(ToOwned::to_owned).collect())
}

/// The environment variable that names the directory into which cargo has just built every program
/// and example of the workspace: nothing is built again.
pub const PROGRAMS: &str = "OZ_PROGRAMS";

/// Returns the program of the workspace package `package`, compiled like the caller (debug or
/// release), by the first call. For a test, cargo does not automatically build the programs of
/// other packages.
///
/// # Errors
///
/// Fails when cargo is missing or the package does not compile.
pub fn cargo_binary(package: &str) -> Result<PathBuf> {
    built(Built::Program, package)
}

/// Returns the example `name` of the workspace, in the same way.
///
/// # Errors
///
/// As [`cargo_binary`].
pub fn cargo_example(name: &str) -> Result<PathBuf> {
    built(Built::Example, name)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Built {
    Program,
    Example,
}

impl Built {
    /// Returns the path to which cargo writes the program.
    fn path(self, directory: &Path, name: &str) -> PathBuf {
        match self {
            Self::Program => directory.join(name),
            Self::Example => directory.join("examples").join(name),
        }
    }
}

fn built(what: Built, name: &str) -> Result<PathBuf> {
    static BUILT: Mutex<BTreeMap<(Built, String), PathBuf>> = Mutex::new(BTreeMap::new());
    if let Some(directory) = std::env::var_os(PROGRAMS) {
        return Ok(what.path(Path::new(&directory), name));
    }
    let mut built = BUILT.lock();
    let key = (what, name.to_owned());
    if let Some(path) = built.get(&key) {
        return Ok(path.clone());
    }
    let path = build(what, name)?;
    built.insert(key, path.clone());
    Ok(path)
}

fn build(what: Built, name: &str) -> Result<PathBuf> {
    let failed = || format!("failed to build {name}");
    // The caller is target/<profile>/deps/<test>, or target/<profile>/<program>.
    let current = std::env::current_exe().with_context(failed)?;
    let directory = current
        .ancestors()
        .skip(1)
        .find(|directory| !directory.ends_with("deps") && !directory.ends_with("examples"))
        .with_context(failed)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet"]);
    match (what, directory.ends_with("release")) {
        // Measured programs are built like released ones: with their own features only.
        (Built::Program, true) => cargo.args(["--release", "--package", name, "--bins"]),
        (Built::Example, true) => cargo.args(["--release", "--example", name]),
        // In the root of the workspace, with the features of all its members: like the caller.
        (Built::Program, false) => cargo.args(["--bin", name]),
        (Built::Example, false) => cargo.args(["--example", name]),
    };
    if let Some(target) = directory.parent() {
        cargo.arg("--target-dir").arg(target);
    }
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    if !cargo.status().with_context(failed)?.success() {
        bail!("failed to build {name}: see cargo's output above");
    }
    Ok(what.path(directory, name))
}

/// Returns libfaketime, if it is installed (Debian's package `faketime`); the variant for programs
/// with several threads, as all of oz's.
#[must_use]
pub fn libfaketime() -> Option<PathBuf> {
    let lib = Path::new("/usr/lib");
    let beside = std::fs::read_dir(lib)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    std::iter::once(lib.to_owned())
        .chain(beside)
        .map(|directory| directory.join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}

/// Shifts the wall clock of `command`: it is `offset` ahead (`+1h`) or behind (`-90s`; the syntax
/// is libfaketime's). Its monotonic clock stays true, so timers that run down are not affected. The
/// program must be dynamically linked.
///
/// # Errors
///
/// Fails when [`libfaketime`] is not installed.
pub fn shift_clock(command: &mut Command, offset: &str) -> Result<()> {
    let library = libfaketime()
        .context("failed to shift a clock: libfaketime is missing (Debian: faketime)")?;
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME", offset)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Ok(())
}
