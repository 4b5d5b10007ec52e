//! The compilation of Go programs, with a progress display while it takes minutes.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::spawn::{Running, spawn};
use crate::system::Signal;
use crate::tool::Tool;

/// The prefix of the directories of compilations; a remaining one was interrupted.
pub(crate) const SCRATCH: &str = "compiling-";

/// A Go module that pins programs by `tool` directives and holds no code, or that is one program.
pub(crate) struct Module {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// The approximate number of Go packages to compile with an empty cache.
    pub(crate) packages: usize,
    /// The duration of the compilation on two cores with an empty cache.
    pub(crate) takes: &'static str,
    pub(crate) go_mod: &'static str,
    pub(crate) go_sum: &'static str,
    /// The content of `main.go`, for a module that is one program.
    pub(crate) source: Option<&'static str>,
    /// The Go variables that the linker sets.
    pub(crate) variables: &'static [(&'static str, &'static str)],
}

impl Module {
    /// Returns all inputs that determine the compiled program; go.sum follows from go.mod.
    pub(crate) fn stamp(&self, tool: Tool) -> String {
        format!(
            "{}\n{}\n\n{}{}",
            tool.package(),
            self.linker_flags(),
            self.go_mod,
            self.source.unwrap_or_default()
        )
    }

    fn linker_flags(&self) -> String {
        let variables = self
            .variables
            .iter()
            .map(|(name, value)| format!(" -X {name}={value}"));
        format!("-s -w{}", variables.collect::<String>())
    }

    /// Compiles `tools` in a new directory inside `cache`; [`output`] returns their paths.
    ///
    /// # Errors
    ///
    /// Fails when Go is missing or fails; the message ends with its last output.
    pub(crate) fn compile(&self, tools: &[Tool], cache: &Path) -> Result<TempDir> {
        let scratch = tempfile::Builder::new()
            .prefix(SCRATCH)
            .tempdir_in(cache)
            .with_context(|| format!("failed to make a directory in {}", cache.display()))?;
        let module = [("go.mod", self.go_mod), ("go.sum", self.go_sum)];
        let source = self.source.map(|source| ("main.go", source));
        for (file, content) in module.into_iter().chain(source) {
            std::fs::write(scratch.path().join(file), content)
                .with_context(|| format!("failed to write {file}"))?;
        }
        let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
        say(&format!(
            "compiling {} {} ({}) from the Go module proxy, once, into {}; \
             with nothing cached this takes {} on two cores",
            self.name,
            self.version,
            names.join(", "),
            cache.display(),
            self.takes,
        ));
        let started = Instant::now();
        self.run_go(tools, scratch.path())?;
        say(&format!(
            "compiled {} in {}",
            self.name,
            clock(started.elapsed())
        ));
        Ok(scratch)
    }

    fn run_go(&self, tools: &[Tool], scratch: &Path) -> Result<()> {
        let mut go = Command::new("go");
        go.args([
            "build",
            "-v",
            "-mod=readonly",
            "-trimpath",
            "-ldflags",
            &self.linker_flags(),
        ])
        .arg("-o")
        .arg(scratch.join("bin/"))
        .args(tools.iter().map(|tool| tool.package()))
        .current_dir(scratch)
        // No C compiler is needed, and the result depends on no library of this machine.
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
        let (reader, writer) = std::io::pipe().context("failed to make a pipe")?;
        go.stderr(writer);
        let child = spawn(go, Signal::Terminate).context(
            "failed to run `go`: install Go 1.26 or newer (https://go.dev/dl), \
             or set KUBEBUILDER_ASSETS to a directory that has the programs",
        )?;
        let (lines, received) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        Progress::new(self).follow(child, &received)
    }
}

/// Returns the path of `tool` in the directory that [`Module::compile`] returns.
pub(crate) fn output(scratch: &Path, tool: Tool) -> PathBuf {
    // Go names a program after its package's last element that is not a version.
    let name = match tool {
        Tool::Etcd => "server",
        Tool::Kubectl130 | Tool::Kubectl132 => Tool::Kubectl.name(),
        tool => tool.name(),
    };
    scratch.join("bin").join(name)
}

struct Progress {
    name: &'static str,
    expected: usize,
    started: Instant,
    shown: Option<Instant>,
    downloads: usize,
    packages: usize,
    tail: VecDeque<String>,
}

impl Progress {
    const LINES_KEPT: usize = 30;

    fn new(module: &Module) -> Self {
        let started = Instant::now();
        Self {
            name: module.name,
            expected: module.packages,
            started,
            shown: None,
            downloads: 0,
            packages: 0,
            tail: VecDeque::new(),
        }
    }

    fn follow(mut self, mut child: Running, lines: &Receiver<String>) -> Result<()> {
        loop {
            match lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => self.take(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.show();
        }
        self.clear();
        let status = child
            .wait(Duration::from_secs(60))
            .context("failed to wait for go")?;
        if status.is_some_and(|status| status.success()) {
            return Ok(());
        }
        let said = self.tail.make_contiguous().join("\n");
        bail!(
            "failed to compile {}: go build ended with {status:?}\n{said}",
            self.name
        )
    }

    fn take(&mut self, line: String) {
        if line.starts_with("go: downloading ") {
            self.downloads += 1;
        } else {
            // With -v, go prints the name of every package that it compiles.
            self.packages += usize::from(!line.contains(' '));
        }
        if self.tail.len() == Self::LINES_KEPT {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    fn show(&mut self) {
        let terminal = std::io::stderr().is_terminal();
        let pause = Duration::from_secs(if terminal { 1 } else { 15 });
        if self.shown.unwrap_or(self.started).elapsed() < pause {
            return;
        }
        self.shown = Some(Instant::now());
        let last = self.tail.back().map_or("", String::as_str);
        let line = format!(
            "{} {}: {} modules fetched, {} of {} packages compiled, now {last}",
            self.name,
            clock(self.started.elapsed()),
            self.downloads,
            self.packages,
            self.expected,
        );
        if terminal {
            let short: String = line.chars().take(100).collect();
            let _ = write!(std::io::stderr(), "\r\x1b[2K{short}");
        } else {
            say(&line);
        }
    }

    fn clear(&self) {
        if self.shown.is_some() && std::io::stderr().is_terminal() {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

fn clock(elapsed: Duration) -> String {
    format!("{}m{:02}s", elapsed.as_secs() / 60, elapsed.as_secs() % 60)
}

/// Prints a line for the waiting user. Not with the print macros: the test harness would hide it
/// until the end.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "testkit: {line}");
}
