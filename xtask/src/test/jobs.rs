//! What is run at once, and in which order. Most suites wait more than they compute: for leases, for
//! ends, for an API server that starts. So several run beside each other, those that take long first,
//! and a suite of which one test runs at a time runs in parts, each with a cluster of its own.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::build::{Suite, cargo};
use super::output::Tier;

/// Suites in so many parts, those that take longest first. Which tests are in which part depends on
/// their names alone, so that a run can be repeated.
const PARTS: [(&str, usize); 3] = [("failure", 2), ("hostile", 4), ("audit", 3)];
/// The suite and the tests that assert how late an end or a takeover may be. They are a part of their own,
/// which begins first and has the processors before all others.
const TIMED: (&str, &str) = ("failure", "replicas::");
/// Further suites on a real API server, those that take longest first, and how many of their tests run
/// at a time: each has a namespace of its own, and waits more than it computes.
const CLUSTER: [(&str, usize); 13] = [
    // Compiles before it waits.
    ("outside", 2),
    ("pod", 4),
    ("chart", 2),
    ("transient", 4),
    ("harness", 6),
    ("harness_parts", 4),
    ("cluster", 4),
    ("connect", 2),
    ("access", 6),
    ("gate", 1),
    ("api_server", 4),
    ("upgrade", 2),
    ("ozctl", 4),
];

/// A suite in which no test ends for so long hangs. No test takes half of it, also on a slow machine.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(10);

/// The environment variable by which the harness is told how many tests run at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// One process to run.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The suite, as in `oz-e2e, access`.
    pub(super) suite: String,
    /// Which part of it, `1/4`.
    pub(super) part: Option<String>,
    pub(super) tier: Tier,
    /// Whether it has to be run before others that want the processors.
    timed: bool,
    /// How many of its tests run at a time, if that is not for the harness to say.
    threads: Option<usize>,
    program: Option<PathBuf>,
    directory: PathBuf,
    arguments: Vec<String>,
}

impl Job {
    /// The tests of a suite whose names contain `filter`.
    fn of(suite: &Suite, filter: Option<&str>) -> Self {
        let threads = CLUSTER.iter().find(|(name, _)| *name == suite.target);
        Self {
            suite: suite.name.clone(),
            part: None,
            tier: suite.tier,
            timed: false,
            threads: threads.map(|(_, threads)| *threads),
            program: Some(suite.program.clone()),
            directory: suite.directory.clone(),
            arguments: filter.map(ToOwned::to_owned).into_iter().collect(),
        }
    }

    /// The suite and the part.
    pub(super) fn name(&self) -> String {
        match &self.part {
            Some(part) => format!("{} {part}", self.suite),
            None => self.suite.clone(),
        }
    }

    /// The doc tests of the whole workspace, by cargo.
    pub(super) fn doc() -> Self {
        Self {
            suite: "doc tests".to_owned(),
            part: None,
            tier: Tier::Doc,
            timed: false,
            threads: None,
            program: None,
            directory: oz_e2e::repository(),
            arguments: ["test", "--workspace", "--doc", "--no-fail-fast"]
                .map(ToOwned::to_owned)
                .to_vec(),
        }
    }

    /// These tests of it alone; `None` for what cargo runs.
    pub(super) fn again(&self, tests: &[String]) -> Option<Self> {
        self.program.as_ref()?;
        Some(Self {
            part: Some("once more".to_owned()),
            timed: true,
            threads: Some(1),
            arguments: [&["--exact".to_owned()], tests].concat(),
            ..self.clone()
        })
    }

    fn command(&self) -> Command {
        let cargo = cargo();
        let program = self.program.as_deref().map(Path::as_os_str);
        let program = program.unwrap_or_else(|| cargo.get_program());
        let mut command = if self.timed {
            Command::new(program)
        } else {
            let mut command = Command::new("nice");
            command.arg(program);
            command
        };
        command
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env("CARGO_TERM_COLOR", "never")
            .args(&self.arguments)
            .stdin(Stdio::null());
        // Whoever says it by hand has the last word.
        if let Some(threads) = self.threads
            && std::env::var_os(THREADS).is_none()
        {
            command.env(THREADS, threads.to_string());
        }
        command
    }
}

/// What the jobs are that run the tests of `suites` whose names contain `filter`: in the order in
/// which they are to begin. Without `divided`, each suite is one.
pub(super) fn jobs(suites: &[Suite], filter: Option<&str>, divided: bool) -> Result<Vec<Job>> {
    // First the first parts of all suites that have parts, then the second ones: those of one suite, which
    // want the same of the machine, run beside each other as little as possible.
    let mut jobs: Vec<(usize, Job)> = Vec::new();
    let mut suites: Vec<&Suite> = suites.iter().collect();
    suites.sort_by_key(|suite| (rank(&suite.target), suite.name.clone()));
    for suite in suites {
        let parts = PARTS.iter().find(|(name, _)| *name == suite.target);
        let Some((_, parts)) = parts.filter(|_| divided) else {
            jobs.push((usize::MAX, Job::of(suite, filter)));
            continue;
        };
        let (timed, tests): (Vec<_>, Vec<_>) = tests(suite, filter)?
            .into_iter()
            .partition(|test| suite.target == TIMED.0 && test.starts_with(TIMED.1));
        let mut divided = divide(tests, *parts);
        divided.insert(0, timed);
        divided.retain(|tests| !tests.is_empty());
        let count = divided.len();
        for (index, tests) in divided.into_iter().enumerate() {
            let timed = tests.iter().all(|test| test.starts_with(TIMED.1));
            let job = Job {
                part: Some(format!("{}/{count}", index + 1)),
                timed,
                arguments: [vec!["--exact".to_owned()], tests].concat(),
                ..Job::of(suite, None)
            };
            jobs.push((index, job));
        }
    }
    jobs.sort_by_key(|(index, _)| *index);
    Ok(jobs.into_iter().map(|(_, job)| job).collect())
}

/// The place of a suite in the order in which they begin.
fn rank(target: &str) -> usize {
    let parts = PARTS.iter().map(|(name, _)| *name);
    let mut order = parts.chain(CLUSTER.iter().map(|(name, _)| *name));
    let place = order.position(|name| name == target);
    place.unwrap_or(PARTS.len() + CLUSTER.len())
}

/// The tests of a suite, by name.
fn tests(suite: &Suite, filter: Option<&str>) -> Result<Vec<String>> {
    let output = Command::new(&suite.program)
        .current_dir(&suite.directory)
        .args(["--list", "--format=terse"])
        .args(filter)
        .output()
        .with_context(|| format!("failed to run {}", suite.program.display()))?;
    ensure!(
        output.status.success(),
        "failed to list the tests of {}",
        suite.name
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(ToOwned::to_owned).collect())
}

/// Neighbours, which are of one file and much alike, go to different parts.
fn divide(tests: Vec<String>, parts: usize) -> Vec<Vec<String>> {
    let mut divided = vec![Vec::new(); parts];
    for (index, test) in tests.into_iter().enumerate() {
        if let Some(part) = divided.get_mut(index % parts) {
            part.push(test);
        }
    }
    divided
}

/// What a job says, by its number.
#[derive(Debug)]
pub(super) enum Event {
    /// It has begun.
    Began(usize),
    /// A line of its output.
    Line(usize, String),
    /// None of its tests ends any more; it is killed.
    Hangs(usize),
    /// It has ended, well or with this.
    Ended(usize, Result<(), String>),
}

/// Runs the jobs in their order, `at_once` of them beside each other; `environment` is for all.
pub(super) fn run(
    jobs: &Arc<[Job]>,
    at_once: usize,
    environment: &[(&'static str, PathBuf)],
) -> Receiver<Event> {
    let (sender, events) = channel();
    let queue: Arc<Mutex<VecDeque<usize>>> = Arc::new(Mutex::new((0..jobs.len()).collect()));
    for _ in 0..at_once {
        let (jobs, queue, sender) = (Arc::clone(jobs), Arc::clone(&queue), sender.clone());
        let environment = environment.to_vec();
        std::thread::spawn(move || {
            loop {
                let next = queue
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_front();
                let Some((number, job)) = next.and_then(|it| Some((it, jobs.get(it)?))) else {
                    break;
                };
                let _ = sender.send(Event::Began(number));
                let ended = follow(number, job, &environment, &sender);
                let ended = ended.map_err(|error| format!("{error:#}"));
                // Whoever listens has gone: nothing more is to be run.
                if sender.send(Event::Ended(number, ended)).is_err() {
                    break;
                }
            }
        });
    }
    events
}

/// Runs one job to its end and tells every line.
fn follow(
    number: usize,
    job: &Job,
    environment: &[(&'static str, PathBuf)],
    sender: &Sender<Event>,
) -> Result<()> {
    // Both streams into one pipe: only then is the order kept.
    let (reader, writer) = std::io::pipe().context("failed to make a pipe")?;
    let mut command = job.command();
    command
        .stdout(writer.try_clone().context("failed to make a pipe")?)
        .stderr(writer);
    for (name, value) in environment {
        command.env(name, Path::new(value));
    }
    let mut child = command
        .spawn()
        .with_context(|| format!("failed to start {}", job.name()))?;
    // Its ends of the pipe are copies of those that the command still holds.
    drop(command);
    let (tell, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if tell.send(line).is_err() {
                break;
            }
        }
    });
    loop {
        match lines.recv_timeout(SILENCE_TIMEOUT) {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line).into_owned();
                let _ = sender.send(Event::Line(number, line));
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let _ = sender.send(Event::Hangs(number));
                child.kill().context("failed to stop it")?;
                child.wait().context("failed to wait for it")?;
                bail!("it printed nothing for {SILENCE_TIMEOUT:?}, and was killed");
            }
        }
    }
    let status = child.wait().context("failed to wait for it")?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_is_in_one_part() {
        let all: Vec<String> = (0..11).map(|number| format!("t{number}")).collect();
        let parts = divide(all.clone(), 4);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 2]);
        let mut together: Vec<String> = parts.concat();
        together.sort_by_key(|name| all.iter().position(|one| one == name));
        assert_eq!(together, all);
    }

    #[test]
    fn what_takes_longest_begins_first() {
        assert!(rank("hostile") < rank("access"));
        assert!(rank("ozctl") < rank("router"));
    }
}
