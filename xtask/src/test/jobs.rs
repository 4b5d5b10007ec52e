//! The jobs of the test runner, and their order. Most suites wait more than they compute: for leases, for
//! expiries, for the start of an API server. So several run at a time, the longest first, and a suite of
//! which one test runs at a time runs in parts, each with a separate cluster.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use oz_testkit::spawn_dependent;
use parking_lot::Mutex;

use super::build::{Suite, cargo};
use super::output::Tier;

/// A group of tests of a suite, which run in separate processes, each with a separate cluster.
struct Group {
    /// The prefixes of the names of the tests; empty for those that are in no other group of the suite.
    modules: &'static [&'static str],
    /// The number of processes. The assignment of tests to processes depends on their names alone, so that a
    /// run can be repeated.
    parts: usize,
    /// The number of tests of a process that run at a time.
    threads: usize,
    /// Whether the tests assert the delay of an end or of a takeover: they begin first, and have the
    /// processors before all others.
    timed: bool,
}

/// The suites in parts, the longest first.
const DIVIDED: [(&str, &[Group]); 7] = [
    (
        "failure",
        &[
            Group {
                modules: &["earlier::", "every_kind::", "replicas::"],
                parts: 2,
                timed: true,
                ..TURNS
            },
            TURNS,
        ],
    ),
    (
        "hostile",
        &[
            // It stores hundreds of megabytes, which every later list includes.
            Group {
                modules: &["memory::"],
                parts: 1,
                ..TURNS
            },
            // They stop oz, or load it so that other tests would suffer: few can run at the same time.
            Group {
                modules: &[
                    "identity::",
                    "locking::",
                    "locks::",
                    "poison::",
                    "policies::",
                    "record::",
                    "tickets::",
                    "unseen::",
                ],
                threads: 2,
                ..TURNS
            },
            Group {
                parts: 2,
                threads: 4,
                ..TURNS
            },
        ],
    ),
    ("audit", &[TURNS]),
    (
        "chart",
        &[
            Group {
                modules: &["install::", "narrowed::", "uninstall::"],
                parts: 2,
                ..TURNS
            },
            // These render the chart, and two of them query an API server.
            Group {
                parts: 1,
                threads: 2,
                ..TURNS
            },
        ],
    ),
    ("gate", &[TURNS]),
    ("connect", &[Group { parts: 2, ..TURNS }]),
    // Each part has a real node. It runs only when it is named, since it requires root.
    (
        "node",
        &[
            // Most of them are about the attempts of one agent, which the first makes.
            Group {
                modules: &["interception::"],
                parts: 1,
                ..TURNS
            },
            // It builds the files of a release, and needs a cluster in which no other test has installed oz.
            Group {
                modules: &["stranger::"],
                parts: 1,
                ..TURNS
            },
            Group {
                timed: true,
                ..TURNS
            },
        ],
    ),
];

/// The group of tests that run one at a time, since each starts and stops oz.
const TURNS: Group = Group {
    modules: &[],
    parts: 3,
    threads: 1,
    timed: false,
};

/// Further suites on a real API server, the longest first, and the number of their tests that run at a time:
/// each has a separate namespace, and waits more than it computes.
const CLUSTER: [(&str, usize); 10] = [
    (COMPILES, 2),
    ("pod", 4),
    ("transient", 4),
    ("harness", 6),
    ("harness_parts", 4),
    ("cluster", 4),
    ("access", 6),
    ("api_server", 4),
    ("upgrade", 2),
    ("ozctl", 4),
];

/// The suite that compiles before it waits. It takes longer than any part of another suite, so it begins with the
/// first parts: at the end of a run, no other job would be left to use its waits.
const COMPILES: &str = "outside";

/// The time without an ended test after which a suite is considered to hang. The slowest test fills a cluster
/// with 400 MB: eight minutes on two cores that ten others use.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(20);

/// The interval between two checks whether a silent test binary has ended.
const EXIT_INTERVAL: Duration = Duration::from_millis(50);
/// The time for which a process may hold the output of a test binary that has ended.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);

/// The environment variable with the number of tests that the harness runs at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// A process to run.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The suite, as in `oz-e2e, access`.
    pub(super) suite: String,
    /// The part of the suite, `1/4`.
    pub(super) part: Option<String>,
    pub(super) tier: Tier,
    /// Whether it must run before others that use the processors.
    timed: bool,
    /// The number of its tests that run at a time, if the harness does not decide it.
    threads: Option<usize>,
    program: Option<PathBuf>,
    directory: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Job {
    /// Creates the job with the tests of a suite of which the names contain one of `filters`, or with all.
    fn of(suite: &Suite, filters: &[String]) -> Self {
        let threads = CLUSTER.iter().find(|(name, _)| *name == suite.target);
        Self {
            suite: suite.name.clone(),
            part: None,
            tier: suite.tier,
            timed: false,
            threads: threads.map(|(_, threads)| *threads),
            program: Some(suite.program.clone()),
            directory: suite.directory.clone(),
            arguments: filters.to_vec(),
            environment: Vec::new(),
        }
    }

    /// Returns the suite and the part.
    pub(super) fn name(&self) -> String {
        match &self.part {
            Some(part) => format!("{} {part}", self.suite),
            None => self.suite.clone(),
        }
    }

    /// Creates the job of the doc tests of the whole workspace, by cargo.
    pub(super) fn doc() -> Self {
        Self {
            suite: "doc tests".to_owned(),
            part: None,
            tier: Tier::Doc,
            timed: false,
            threads: None,
            program: None,
            directory: oz_testkit::repository(),
            arguments: ["test", "--workspace", "--doc", "--no-fail-fast"]
                .map(ToOwned::to_owned)
                .to_vec(),
            environment: Vec::new(),
        }
    }

    /// Creates a job with only these tests; `None` for a job that cargo runs.
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

    /// Makes the harness report the time of each test. The option is not stable, so the variable that permits
    /// it is set; doc tests, which cargo runs, do without.
    pub(super) fn report_times(&mut self) {
        if self.program.is_some() {
            let options = ["-Zunstable-options", "--report-time"];
            self.arguments.extend(options.map(ToOwned::to_owned));
            self.environment.push(("RUSTC_BOOTSTRAP", "1".to_owned()));
        }
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
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        // A value from the user takes precedence.
        if let Some(threads) = self.threads
            && std::env::var_os(THREADS).is_none()
        {
            command.env(THREADS, threads.to_string());
        }
        command
    }
}

/// Returns the jobs that run the tests of `suites` of which the names contain one of `filters`, or all if there are
/// none, in their starting order. Without `divided`, each suite is one.
pub(super) fn jobs(suites: &[Suite], filters: &[String], divided: bool) -> Result<Vec<Job>> {
    // First the first parts of all suites that have parts, then the second ones: those of one suite, which
    // load the machine in the same way, run at the same time as little as possible.
    let mut jobs: Vec<(usize, Job)> = Vec::new();
    let mut suites: Vec<&Suite> = suites.iter().collect();
    suites.sort_by_key(|suite| (rank(&suite.target), suite.name.clone()));
    for suite in suites {
        let groups = DIVIDED.iter().find(|(name, _)| *name == suite.target);
        let Some((_, groups)) = groups.filter(|_| divided) else {
            let compiles = suite.target == COMPILES;
            jobs.push((
                if compiles { 0 } else { usize::MAX },
                Job::of(suite, filters),
            ));
            continue;
        };
        let parts = parts(groups, &tests(suite, filters)?);
        let count = parts.len();
        for (index, (group, tests)) in parts.into_iter().enumerate() {
            let job = Job {
                part: Some(format!("{}/{count}", index + 1)),
                timed: group.timed,
                threads: Some(group.threads),
                arguments: [vec!["--exact".to_owned()], tests].concat(),
                ..Job::of(suite, &[])
            };
            jobs.push((if group.timed { 0 } else { index }, job));
        }
    }
    jobs.sort_by_key(|(index, _)| *index);
    Ok(jobs.into_iter().map(|(_, job)| job).collect())
}

/// Returns the parts of a suite that have tests.
fn parts<'a>(groups: &'a [Group], tests: &[String]) -> Vec<(&'a Group, Vec<String>)> {
    let group_of = |test: &String| {
        let named = |group: &Group| group.modules.iter().any(|module| test.starts_with(module));
        let found = groups.iter().position(named);
        found.or_else(|| groups.iter().position(|group| group.modules.is_empty()))
    };
    let mut parts = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let of_group = tests.iter().filter(|test| group_of(test) == Some(index));
        let divided = divide(of_group.cloned().collect(), group.parts);
        let with_tests = divided.into_iter().filter(|tests| !tests.is_empty());
        parts.extend(with_tests.map(|tests| (group, tests)));
    }
    parts
}

/// Returns the place of a suite in the starting order.
fn rank(target: &str) -> usize {
    let divided = DIVIDED.iter().map(|(name, _)| *name);
    let mut order = divided.chain(CLUSTER.iter().map(|(name, _)| *name));
    let place = order.position(|name| name == target);
    place.unwrap_or(DIVIDED.len() + CLUSTER.len())
}

/// Returns the tests of a suite of which the names contain one of `filters`, or all, by name.
fn tests(suite: &Suite, filters: &[String]) -> Result<Vec<String>> {
    let output = Command::new(&suite.program)
        .current_dir(&suite.directory)
        .args(["--list", "--format=terse"])
        .args(filters)
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

/// Distributes tests over parts. Neighbours, which are in one file and similar, are in different parts.
fn divide(tests: Vec<String>, parts: usize) -> Vec<Vec<String>> {
    let mut divided = vec![Vec::new(); parts];
    for (index, test) in tests.into_iter().enumerate() {
        if let Some(part) = divided.get_mut(index % parts) {
            part.push(test);
        }
    }
    divided
}

/// An event of a job, with its number.
#[derive(Debug)]
pub(super) enum Event {
    /// The job has begun.
    Began(usize),
    /// The process of the job has started, with this id.
    Started(usize, u32),
    /// A line of its output.
    Line(usize, String),
    /// None of its tests ends any more; it is killed.
    Hangs(usize),
    /// The job has ended, with success or with this error.
    Ended(usize, Result<(), String>),
}

/// Runs the jobs in their order, `at_once` of them at a time; `environment` is for all.
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
                let next = queue.lock().pop_front();
                let Some((number, job)) = next.and_then(|it| Some((it, jobs.get(it)?))) else {
                    break;
                };
                let _ = sender.send(Event::Began(number));
                let ended = follow(number, job, &environment, &sender);
                let ended = ended.map_err(|error| format!("{error:#}"));
                // The receiver no longer exists: nothing more must run.
                if sender.send(Event::Ended(number, ended)).is_err() {
                    break;
                }
            }
        });
    }
    events
}

/// Runs one job to its end and sends every line.
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
    // It ends with this runner, for any cause of that end, and its clusters end with it.
    let mut child =
        spawn_dependent(command).with_context(|| format!("failed to start {}", job.name()))?;
    let _ = sender.send(Event::Started(number, child.pid()));
    let (tell, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if tell.send(line).is_err() {
                break;
            }
        }
    });
    let (mut heard, mut gone_at) = (Instant::now(), None);
    let status = loop {
        match lines.recv_timeout(EXIT_INTERVAL) {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line).into_owned();
                let _ = sender.send(Event::Line(number, line));
                heard = Instant::now();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let ended = child
                    .wait(SILENCE_TIMEOUT)
                    .context("failed to wait for it")?;
                break ended.context("it closed its output and did not end")?;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let exited = child.exited().context("failed to wait for it")?;
        // The last lines may arrive after the end of a test without output for long.
        let gone = exited.map(|_| *gone_at.get_or_insert_with(Instant::now));
        if gone.is_some_and(|gone| gone.max(heard).elapsed() > OUTPUT_TIMEOUT) {
            bail!("it has ended, but a process that it started still holds its output");
        }
        if exited.is_none() && heard.elapsed() > SILENCE_TIMEOUT {
            let _ = sender.send(Event::Hangs(number));
            child.kill();
            bail!("it printed nothing for {SILENCE_TIMEOUT:?}, and was killed");
        }
    };
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
    fn long_suites_begin_first() {
        assert!(rank("hostile") < rank("access"));
        assert!(rank("ozctl") < rank("router"));
    }

    #[test]
    fn every_group_of_a_suite_takes_its_tests_and_one_takes_the_rest() {
        for (suite, groups) in DIVIDED {
            let rests = groups.iter().filter(|group| group.modules.is_empty());
            assert_eq!(rests.count(), 1, "{suite}");
        }
        let tests = ["replicas::a", "clock::a", "replicas::b", "keys::a"].map(ToOwned::to_owned);
        let groups = [
            Group {
                modules: &["replicas::"],
                parts: 1,
                ..TURNS
            },
            TURNS,
        ];
        let parts = parts(&groups, &tests);
        let parts: Vec<_> = parts.iter().map(|(_, tests)| tests.join(" ")).collect();
        assert_eq!(parts, ["replicas::a replicas::b", "clock::a", "keys::a"]);
    }
}
