//! `cargo xtask test`: every test that requires no root, one line for each test binary that has ended, all
//! failures in full, and the sum at the end.

mod build;
mod jobs;
mod load;
mod output;
mod profile;
mod summary;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use oz_testkit::{Kubernetes, Tool, Tools, libfaketime};

use crate::permissions;
use jobs::{Event, Job};
use load::Load;
use output::Binary;
use profile::Profile;
use summary::Summary;
use xtask::programs;
use xtask::screen::{Screen, Style};

/// Without a terminal, the time without output after which a line shows the running jobs.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Which tests.
#[derive(Args)]
pub(crate) struct Options {
    /// Only tests with this text in the name; given several times, tests with one of the texts.
    #[arg(long = "filter", value_name = "TEXT")]
    filters: Vec<String>,
    /// Only this test binary, such as `access`; may be given several times.
    #[arg(long = "suite", value_name = "NAME")]
    suites: Vec<String>,
    /// The number of suites that run at a time [default: two for each processor; one with CLUSTER].
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<NonZero<usize>>,
    /// Print where the time goes: processor time by program, clusters, waits and the slowest tests.
    #[arg(long)]
    profile: bool,
    /// Add load: two busy loops for each processor, and constant writes to the disk. Failed tests get no second
    /// try.
    #[arg(long)]
    stress: bool,
}

impl Options {
    /// Checks whether all tests run, each suite on a separate cluster.
    fn is_whole(&self) -> bool {
        self.filters.is_empty() && self.suites.is_empty() && !has_cluster()
    }

    /// Checks whether failed tests run once more. A user who names tests wants to see each failure.
    fn has_second_try(&self) -> bool {
        self.filters.is_empty() && !self.stress && !has_cluster()
    }

    fn at_once(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let default = if has_cluster() { 1 } else { 2 * processors };
        self.jobs.map_or(default, NonZero::get)
    }
}

/// Checks whether the environment names one cluster for all.
fn has_cluster() -> bool {
    std::env::var_os("CLUSTER").is_some_and(|value| !value.is_empty())
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let screen = Screen::stdout();
    let required = std::env::var_os("OZ_REQUIRE_ALL").is_some_and(|value| value == "1");
    let kubernetes = Kubernetes::from_environment()?;
    let compiling = Instant::now();
    let suites = build::build(&options.suites)?;
    let compiled = compiling.elapsed();
    if options.suites.is_empty() || kubernetes != Kubernetes::default() {
        // The tests that need these obtain them themselves; here, the progress is visible, and no test waits beside a
        // compiler.
        Tools::obtain(&[&Tool::CLUSTER[..], &[Tool::Helm]].concat())?;
    }
    let began = Instant::now();
    let mut summary = Summary::default();
    if libfaketime().is_none() {
        summary.lacks(
            "libfaketime",
            "the tests that set a process's clock wrong do not run; Debian's package is faketime",
        );
    }
    let target = programs::target_directory()?;
    let [recorded, _] = permissions::directories()?;
    if options.is_whole() && recorded.exists() {
        std::fs::remove_dir_all(&recorded)
            .context("failed to remove the results of the last run")?;
    }
    let mut jobs = jobs::jobs(&suites, &options.filters, !has_cluster())?;
    if options.suites.is_empty() && options.filters.is_empty() {
        jobs.push(Job::doc());
    }
    let target_profile = target.join("profile");
    let mut profile = None;
    if options.profile {
        jobs.iter_mut().for_each(Job::report_times);
        profile = Some(Profile::start(target_profile)?);
    }
    let jobs: Arc<[Job]> = jobs.into();
    let mut environment = vec![(oz_testkit::PROGRAMS, programs_directory()?)];
    if options.is_whole() {
        environment.push((oz_testkit::permissions::RECORD, recorded.clone()));
    }
    if let Some(profile) = &profile {
        environment.push((oz_testkit::PROFILE, profile.directory().to_owned()));
    }
    let _load = options.stress.then(|| Load::start(&target)).transpose()?;
    let log = target.join("test.log");
    let events = jobs::run(&jobs, options.at_once(), &environment);
    let mut log_file =
        File::create(&log).with_context(|| format!("failed to make the log {}", log.display()))?;
    let ended = follow(screen, &jobs, &events, &mut log_file, profile.as_mut())?;
    let tables = profile.map(|profile| profile.end(&jobs, &ended, compiled));
    let ended = if options.has_second_try() {
        once_more(
            screen,
            &jobs,
            ended,
            &environment,
            &mut log_file,
            &mut summary,
        )?
    } else {
        ended
    };
    for (_, binary) in &ended {
        summary.add(binary);
    }
    if options.is_whole() && !summary.has_failed() {
        judge(screen, &recorded, &mut summary)?;
    }
    if let Some(tables) = tables.transpose()? {
        screen.line(&tables)?;
    }
    let log = programs::from_here(&log);
    screen.line(&summary.text(screen, required, &log, began.elapsed()))?;
    Ok(ExitCode::from(u8::from(!summary.is_good(required))))
}

/// Returns the directory into which cargo has put the programs that tests start.
fn programs_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().context("failed to find this program")?;
    let directory = program.parent().context("failed to find its directory")?;
    ensure!(
        cfg!(debug_assertions),
        "tests start the programs of a debug build: run this without --release"
    );
    Ok(directory.to_owned())
}

/// Checks whether oz has the permissions that it used in the tests, and no others. Tests that fail may not
/// have used all of their permissions.
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

/// Runs the failed tests once more, one at a time, when nothing else runs. The summary lists those that pass then
/// as flaky: each is a defect, of the test or of the product.
fn once_more(
    screen: Screen,
    jobs: &[Job],
    mut ended: Vec<(usize, Binary)>,
    environment: &[(&'static str, PathBuf)],
    log: &mut File,
    summary: &mut Summary,
) -> Result<Vec<(usize, Binary)>> {
    for (number, binary) in &mut ended {
        let again = binary
            .failed_alone()
            .and_then(|tests| jobs.get(*number)?.again(tests));
        let Some(again) = again else { continue };
        let again: Arc<[Job]> = [again].into();
        let events = jobs::run(&again, 1, environment);
        let alone = follow(screen, &again, &events, log, None)?;
        if alone.iter().all(|(_, alone)| alone.failed == 0) {
            binary.passed_alone();
            summary.flaky(binary);
        }
    }
    Ok(ended)
}

/// Reads the output of the tests until all have ended, and shows each binary as it ends; returns the result
/// of each job, by its number.
fn follow(
    screen: Screen,
    jobs: &[Job],
    events: &Receiver<Event>,
    log: &mut File,
    mut profile: Option<&mut Profile>,
) -> Result<Vec<(usize, Binary)>> {
    let mut all = Vec::new();
    let mut running: BTreeMap<usize, Binary> = BTreeMap::new();
    let mut shown = Instant::now();
    loop {
        match events.recv_timeout(Duration::from_millis(500)) {
            Ok(Event::Began(number)) => {
                if let Some(job) = jobs.get(number) {
                    let binary = Binary::new(job.suite.clone(), job.name(), job.tier);
                    running.insert(number, binary);
                }
            }
            Ok(Event::Started(number, pid)) => {
                if let Some(profile) = &mut profile {
                    profile.started(number, pid);
                }
            }
            Ok(Event::Line(number, line)) => {
                if let Some(profile) = &mut profile {
                    profile.line(number, &line);
                }
                if let Some(binary) = running.get_mut(&number) {
                    writeln!(log, "{}: {line}", binary.name).context("failed to write the log")?;
                    binary.take(&line);
                }
            }
            Ok(Event::Hangs(number)) => {
                if let Some(binary) = running.get_mut(&number) {
                    binary.hangs();
                }
            }
            Ok(Event::Ended(number, ended)) => {
                if let Some(binary) = running.remove(&number) {
                    let binary = binary.end(ended);
                    show(screen, &binary)?;
                    all.push((number, binary));
                    shown = Instant::now();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(all),
        }
        let binaries = running.values();
        let lines = binaries.map(|binary| format!("{} {}", binary.name, binary.progress()));
        let line = format!("     {}", lines.collect::<Vec<_>>().join("; "));
        screen.passing(&line)?;
        if !screen.is_terminal() && shown.elapsed() > HEARTBEAT_INTERVAL {
            screen.line(&line)?;
            shown = Instant::now();
        }
    }
}

/// Prints one line for a binary that has ended, and all of its output after a failure.
fn show(screen: Screen, binary: &Binary) -> Result<()> {
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
