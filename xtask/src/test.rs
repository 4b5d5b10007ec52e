//! `cargo xtask test`: every test that needs no root, one line for each test binary while they run,
//! what failed in full, and the sum at the end.

mod output;
mod summary;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, PipeReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use oz_testkit::{Tool, Tools, libfaketime};
use serde::Deserialize;

use crate::permissions;
use crate::programs;
use crate::screen::{Screen, Style};
use output::{Binary, Output};
use summary::Summary;

/// Without a terminal, how long nothing is said before a line says that it goes on.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Which tests.
#[derive(Args)]
pub(crate) struct Options {
    /// Only tests whose name contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Only tests of this package; may be given several times.
    #[arg(short, long, value_name = "NAME")]
    package: Vec<String>,
}

impl Options {
    /// Whether all tests run, each on a cluster of its own.
    fn is_whole(&self) -> bool {
        let own = std::env::var_os("CLUSTER").is_none_or(|value| value.is_empty());
        self.filter.is_none() && self.package.is_empty() && own
    }

    fn selection(&self) -> Vec<&str> {
        if self.package.is_empty() {
            return vec!["--workspace"];
        }
        let packages = self.package.iter();
        packages
            .flat_map(|name| ["--package", name.as_str()])
            .collect()
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let screen = Screen::new();
    let required = std::env::var_os("OZ_REQUIRE_ALL").is_some_and(|value| value == "1");
    let names = build(options)?;
    if options.package.is_empty() {
        // The tests that need these see to it themselves; here, one sees how far it is.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(programs::build(&programs::OZ))?;
        Tools::obtain(&Tool::CLUSTER)?;
    }
    let mut summary = Summary::default();
    if libfaketime().is_none() {
        summary.lacks(
            "libfaketime",
            "the tests that set a process's clock wrong do not run; Debian's package is faketime",
        );
    }
    let log = programs::target_directory()?.join("test.log");
    let [recorded, _] = permissions::directories()?;
    if options.is_whole() && recorded.exists() {
        std::fs::remove_dir_all(&recorded).context("failed to forget what was used before")?;
    }
    let (mut child, said) = start(options, &recorded)?;
    let ended = follow(screen, said, &log, names, &mut summary);
    if ended.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().context("failed to wait for cargo")?;
    ended?;
    if !status.success() {
        summary.cargo_failed();
    } else if options.is_whole() {
        judge(screen, &recorded, &mut summary)?;
    }
    screen.line(&summary.text(screen, required, &programs::from_here(&log)))?;
    Ok(ExitCode::from(u8::from(!summary.is_good(required))))
}

/// Whether oz has the permissions that it used in the tests, and no others. Tests that fail may not
/// have come to what they would have used.
fn judge(screen: Screen, recorded: &Path, summary: &mut Summary) -> Result<()> {
    let uses = oz_testkit::permissions::recorded(recorded)?;
    let findings = permissions::findings(&uses, &Default::default())?;
    if findings.is_empty() {
        return screen.line("ok   deploy/rbac: every rule is used, nothing was refused");
    }
    screen.line(&findings.join("\n"))?;
    summary.fails("deploy/rbac", findings.len());
    Ok(())
}

/// Compiles the tests with cargo's progress on the screen. Gives the package and the name of each
/// test binary by its file name, which is all that cargo tells later on.
fn build(options: &Options) -> Result<BTreeMap<String, String>> {
    #[derive(Deserialize)]
    struct Message {
        reason: String,
        #[serde(default)]
        package_id: String,
        target: Option<Target>,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
        kind: Vec<String>,
    }
    let mut cargo = cargo(options);
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .context("failed to run cargo")?;
    if !output.status.success() {
        bail!("failed to compile the tests: see above");
    }
    let mut names = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Message>(line) else {
            continue;
        };
        let (Some(target), Some(program)) = (message.target, message.executable) else {
            continue;
        };
        if message.reason == "compiler-artifact"
            && let Some(file) = program.file_name()
        {
            let package = package_name(&message.package_id);
            let name = match target.kind.first().map(String::as_str) {
                Some("test") => format!("{package}, {}", target.name),
                Some("bin") => format!("{package}, unit tests of the program"),
                _ => format!("{package}, unit tests"),
            };
            names.insert(file.to_string_lossy().into_owned(), name);
        }
    }
    Ok(names)
}

fn cargo(options: &Options) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(oz_e2e::repository())
        .stdin(Stdio::null())
        .args(["test", "--no-fail-fast"])
        .args(options.selection());
    cargo
}

/// As in `path+file:///…/crates/core#oz-core@0.1.0`; where the directory has the package's name, as in
/// `path+file:///…/xtask#0.1.0`.
fn package_name(id: &str) -> &str {
    let (path, fragment) = id.split_once('#').unwrap_or_default();
    let directory = path.rsplit('/').next().unwrap_or_default();
    fragment.split_once('@').map_or(directory, |(name, _)| name)
}

/// Starts the tests. Gives all that cargo and they say.
fn start(options: &Options, recorded: &Path) -> Result<(Child, PipeReader)> {
    let failed = "failed to make a pipe";
    let mut cargo = cargo(options);
    if let Some(filter) = &options.filter {
        cargo.arg(filter);
    }
    // Both streams into one pipe: only then is the order kept.
    let (reader, writer) = std::io::pipe().context(failed)?;
    cargo
        .stdout(writer.try_clone().context(failed)?)
        .stderr(writer)
        .env("CARGO_TERM_COLOR", "never");
    if options.is_whole() {
        cargo.env(oz_testkit::permissions::RECORD, recorded);
    }
    Ok((cargo.spawn().context("failed to run cargo")?, reader))
}

/// Reads what the tests say until they are through, and shows each binary as it ends.
fn follow(
    screen: Screen,
    said: PipeReader,
    log: &Path,
    names: BTreeMap<String, String>,
    summary: &mut Summary,
) -> Result<()> {
    let mut file =
        File::create(log).with_context(|| format!("failed to make the log {}", log.display()))?;
    let lines = lines(said);
    let mut output = Output::new(names);
    let mut shown = Instant::now();
    loop {
        match lines.recv_timeout(Duration::from_millis(500)) {
            Ok(line) => {
                writeln!(file, "{line}").context("failed to write the log")?;
                if let Some(binary) = output.take(&line) {
                    show(screen, &binary, summary)?;
                    shown = Instant::now();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if let Some(binary) = output.running() {
            let line = format!("     {:48} {}", binary.name, binary.progress());
            screen.passing(&line)?;
            if !screen.is_terminal() && shown.elapsed() > HEARTBEAT {
                screen.line(&line)?;
                shown = Instant::now();
            }
        }
    }
    output
        .end()
        .map_or(Ok(()), |binary| show(screen, &binary, summary))
}

fn lines(said: PipeReader) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// One line for a binary that is through, and all that it said if something failed.
fn show(screen: Screen, binary: &Binary, summary: &mut Summary) -> Result<()> {
    summary.add(binary);
    if binary.is_empty() {
        return Ok(());
    }
    let mark = if binary.failed == 0 {
        screen.paint(Style::Good, "ok  ")
    } else {
        screen.paint(Style::Bad, "FAIL")
    };
    let seconds = binary.took.as_secs_f64();
    let counts = binary.counts();
    screen.line(&format!(
        "{mark} {:48} {counts:28} {seconds:7.1} s",
        binary.name
    ))?;
    if binary.failed > 0 {
        screen.line(&binary.said.join("\n"))?;
    }
    Ok(())
}
