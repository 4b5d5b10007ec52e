//! `cargo xtask test --profile`: the processor time of every program that a suite starts, the clusters
//! it starts, the conditions it waits for, and the slowest tests.
//!
//! Processor time is read from `/proc` five times a second. Programs that live shorter than that, mostly
//! kubectl and helm, appear in the sum that their parent has waited for (`cutime` in proc(5)).

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use oz_testkit::Wait;
use parking_lot::Mutex;

use super::jobs::Job;
use super::output::Binary;
use xtask::screen::columns;

/// The interval of the samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);
/// The unit of the times in `/proc/PID/stat`; 100 on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// The length of the tables of tests and of waits.
const ROWS: usize = 30;

/// The columns of processor time: a title and the programs, by the 15 characters that the kernel keeps.
const PROGRAMS: [(&str, &[&str]); 5] = [
    ("API SERVER", &["kube-apiserver"]),
    ("ETCD", &["etcd"]),
    (
        "CONTROLLERS",
        &["kube-controller", "kube-scheduler", "kwok", "sh"],
    ),
    (
        "OZ",
        &[
            "oz-operator",
            "oz-webhook",
            "oz-broker",
            "oz-gate",
            "oz-harness",
            "ozctl",
        ],
    ),
    ("TEST", &[]),
];
const TEST: usize = 4;
/// The last column: programs that are in no other, short-lived ones included.
const OTHER: usize = PROGRAMS.len();
type Times = [f64; OTHER + 1];

/// A process, by its id and its start: ids are reused.
type Process = (u32, u64);

/// The last sample of a process.
#[derive(Debug)]
struct Sample {
    parent: u32,
    program: String,
    /// User and system time, in ticks.
    own: u64,
    /// The time of its ended children, in ticks.
    waited: u64,
    job: usize,
}

/// The data of the sampler.
#[derive(Debug, Default)]
struct Samples {
    /// The job for which each test binary was started.
    roots: BTreeMap<u32, usize>,
    processes: HashMap<Process, Sample>,
}

/// A running profile.
pub(super) struct Profile {
    samples: Arc<Mutex<Samples>>,
    ended: Arc<AtomicBool>,
    sampler: JoinHandle<()>,
    directory: PathBuf,
    clusters: BTreeMap<usize, Vec<f64>>,
}

impl Profile {
    /// Starts to sample; test binaries leave their waits in `directory`.
    ///
    /// # Errors
    ///
    /// Fails when the directory cannot be made empty.
    pub(super) fn start(directory: PathBuf) -> Result<Self> {
        let failed = || format!("failed to make {}", directory.display());
        if directory.exists() {
            std::fs::remove_dir_all(&directory).with_context(failed)?;
        }
        std::fs::create_dir_all(&directory).with_context(failed)?;
        let samples = Arc::new(Mutex::new(Samples::default()));
        let ended = Arc::new(AtomicBool::new(false));
        let sampler = {
            let (samples, ended) = (Arc::clone(&samples), Arc::clone(&ended));
            std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let mut samples = samples.lock();
                    samples.take();
                    drop(samples);
                    std::thread::sleep(SAMPLE_INTERVAL);
                }
            })
        };
        Ok(Self {
            samples,
            ended,
            sampler,
            directory,
            clusters: BTreeMap::new(),
        })
    }

    /// Returns the directory for [`oz_testkit::PROFILE`].
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Records that the process of a job has started.
    pub(super) fn started(&self, job: usize, pid: u32) {
        let mut samples = self.samples.lock();
        samples.roots.insert(pid, job);
    }

    /// Reads a line of a job's output: the test kit reports each cluster that it starts.
    pub(super) fn line(&mut self, job: usize, line: &str) {
        let seconds = line
            .split_once("testkit: Kubernetes ")
            .and_then(|(_, rest)| rest.split_once(" started in "))
            .and_then(|(_, rest)| rest.split_once(" s ("))
            .and_then(|(seconds, _)| seconds.parse().ok());
        if let Some(seconds) = seconds {
            self.clusters.entry(job).or_default().push(seconds);
        }
    }

    /// Ends the profile and returns its tables.
    ///
    /// # Errors
    ///
    /// Fails when a file of waits cannot be read.
    pub(super) fn end(
        self,
        jobs: &[Job],
        binaries: &[(usize, Binary)],
        compiled: Duration,
    ) -> Result<String> {
        self.ended.store(true, Ordering::Relaxed);
        // The samples of a sampler that panicked are still valid.
        let _ = self.sampler.join();
        let samples = self.samples.lock();
        let mut lines = vec![
            String::new(),
            format!("COMPILED AND LINKED in {:.0} s", compiled.as_secs_f64()),
            String::new(),
            "PROCESSOR SECONDS by suite and program; clusters and the seconds until they were ready"
                .to_owned(),
        ];
        lines.extend(suites(&samples, &self.clusters, jobs, binaries));
        lines.push(String::new());
        lines.extend(slowest(binaries));
        lines.push(String::new());
        lines.extend(waits(&self.directory)?);
        Ok(lines.join("\n"))
    }
}

impl Samples {
    /// Reads the times of every process that descends from a test binary.
    fn take(&mut self) {
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return;
        };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let running: HashMap<u32, Stat> = pids
            .filter_map(|pid: u32| Some((pid, Stat::read(pid)?)))
            .collect();
        for (pid, stat) in &running {
            let known = self.processes.get(&(*pid, stat.started));
            let job = known.map_or_else(|| self.job(*pid, &running), |known| Some(known.job));
            let Some(job) = job else { continue };
            let sample = Sample {
                parent: stat.parent,
                program: stat.program.clone(),
                own: stat.own,
                waited: stat.waited,
                job,
            };
            self.processes.insert((*pid, stat.started), sample);
        }
    }

    /// Finds the job of which the test binary is the process or one of its ancestors.
    fn job(&self, pid: u32, running: &HashMap<u32, Stat>) -> Option<usize> {
        let parents = std::iter::successors(Some(pid), |pid| Some(running.get(pid)?.parent));
        parents
            .take_while(|pid| *pid > 1)
            .find_map(|pid| self.roots.get(&pid).copied())
    }

    /// Returns the processor seconds of each job.
    fn times(&self) -> BTreeMap<usize, Times> {
        let mut seen: HashMap<u32, u64> = HashMap::new();
        for sample in self.processes.values() {
            *seen.entry(sample.parent).or_default() += sample.own + sample.waited;
        }
        let mut times: BTreeMap<usize, Times> = BTreeMap::new();
        for ((pid, _), sample) in &self.processes {
            let column = if self.roots.contains_key(pid) {
                TEST
            } else {
                column(&sample.program)
            };
            let of_job = times.entry(sample.job).or_default();
            let children = seen.get(pid).copied().unwrap_or_default();
            let unseen = sample.waited.saturating_sub(children);
            for (column, ticks) in [(column, sample.own), (OTHER, unseen)] {
                if let Some(time) = of_job.get_mut(column) {
                    *time += seconds(ticks);
                }
            }
        }
        times
    }
}

#[expect(clippy::cast_precision_loss, reason = "a sum of times, for a table")]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND
}

/// Returns the column of a program.
fn column(program: &str) -> usize {
    let found = PROGRAMS
        .iter()
        .position(|(_, names)| names.contains(&program));
    found.unwrap_or(OTHER)
}

/// The used fields of `/proc/PID/stat`.
#[derive(Debug)]
struct Stat {
    parent: u32,
    program: String,
    own: u64,
    waited: u64,
    started: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name, in parentheses, may contain any character.
        let (head, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            program: head.split_once('(')?.1.to_owned(),
            own: field(11)? + field(12)?,
            waited: field(13)? + field(14)?,
            started: field(19)?,
        })
    }
}

/// Returns the table of suites, the most expensive first, and their sum.
fn suites(
    samples: &Samples,
    clusters: &BTreeMap<usize, Vec<f64>>,
    jobs: &[Job],
    binaries: &[(usize, Binary)],
) -> Vec<String> {
    #[derive(Default)]
    struct Row {
        wall: f64,
        times: Times,
        clusters: usize,
        starting: f64,
    }
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for (number, times) in samples.times() {
        let Some(job) = jobs.get(number) else {
            continue;
        };
        let row = rows.entry(job.suite.clone()).or_default();
        for (sum, time) in row.times.iter_mut().zip(times) {
            *sum += time;
        }
        let started = clusters.get(&number).map(Vec::as_slice).unwrap_or_default();
        row.clusters += started.len();
        row.starting += started.iter().sum::<f64>();
    }
    for (_, binary) in binaries {
        if let Some(row) = rows.get_mut(&binary.suite) {
            row.wall += binary.took.as_secs_f64();
        }
    }
    let mut sum = Row::default();
    for row in rows.values() {
        for (sum, time) in sum.times.iter_mut().zip(row.times) {
            *sum += time;
        }
        sum.wall += row.wall;
        sum.clusters += row.clusters;
        sum.starting += row.starting;
    }
    let mut rows: Vec<(String, Row)> = rows.into_iter().collect();
    rows.sort_by(|(_, one), (_, other)| {
        let [one, other] = [one, other].map(|row| row.times.iter().sum::<f64>());
        other.total_cmp(&one)
    });
    rows.push(("all suites".to_owned(), sum));
    let mut head = vec!["SUITE", "WALL", "CLUSTERS", "START", "PROCESSOR"];
    head.extend(PROGRAMS.map(|(title, _)| title));
    head.push("OTHER");
    let mut table = vec![head.into_iter().map(ToOwned::to_owned).collect()];
    for (suite, row) in rows {
        let mut cells = vec![
            suite,
            format!("{:6.1}", row.wall),
            format!("{:8}", row.clusters),
            format!("{:5.1}", row.starting),
            format!("{:9.1}", row.times.iter().sum::<f64>()),
        ];
        cells.extend(row.times.map(|time| format!("{time:6.1}")));
        table.push(cells);
    }
    columns(&table)
}

/// Returns the table of the slowest tests.
fn slowest(binaries: &[(usize, Binary)]) -> Vec<String> {
    let tests = binaries.iter().flat_map(|(_, binary)| {
        let times = binary.times.iter();
        times.map(|(test, seconds)| (*seconds, &binary.suite, test))
    });
    let mut tests: Vec<_> = tests.collect();
    tests.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
    let mut table = vec![
        ["SLOWEST TESTS", "SECONDS", ""]
            .map(ToOwned::to_owned)
            .to_vec(),
    ];
    for (seconds, suite, test) in tests.into_iter().take(ROWS) {
        table.push(vec![suite.clone(), format!("{seconds:7.1}"), test.clone()]);
    }
    columns(&table)
}

/// Returns the table of the conditions with the longest total waits, with numbers and names of namespaces
/// left out.
fn waits(directory: &Path) -> Result<Vec<String>> {
    let failed = || format!("failed to read the waits in {}", directory.display());
    let mut sums: BTreeMap<String, (u64, usize, u64)> = BTreeMap::new();
    for entry in std::fs::read_dir(directory).with_context(failed)? {
        let text = std::fs::read_to_string(entry.with_context(failed)?.path());
        // The last line of a process that was killed may be half a line.
        let waits = text.with_context(failed)?;
        for wait in waits
            .lines()
            .filter_map(|line| serde_json::from_str::<Wait>(line).ok())
        {
            let (sum, count, longest) = sums.entry(general(&wait.condition)).or_default();
            *sum += wait.milliseconds;
            *count += 1;
            *longest = (*longest).max(wait.milliseconds);
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, (sum, ..))| std::cmp::Reverse(*sum));
    let head = ["WAITED FOR", "SECONDS", "TIMES", "LONGEST"];
    let mut table = vec![head.map(ToOwned::to_owned).to_vec()];
    for (condition, (sum, count, longest)) in sums.into_iter().take(ROWS) {
        let seconds = |milliseconds: u64| Duration::from_millis(milliseconds).as_secs_f64();
        table.push(vec![
            condition,
            format!("{:7.1}", seconds(sum)),
            format!("{count:5}"),
            format!("{:7.1}", seconds(longest)),
        ]);
    }
    Ok(columns(&table))
}

/// Replaces each number of the condition by one `#`.
fn general(condition: &str) -> String {
    let mut general = String::new();
    for character in condition.chars().take(80) {
        if !character.is_ascii_digit() {
            general.push(character);
        } else if !general.ends_with('#') {
            general.push('#');
        }
    }
    general
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(parent: u32, program: &str, own: u64, waited: u64) -> Sample {
        Sample {
            parent,
            program: program.to_owned(),
            own,
            waited,
            job: 0,
        }
    }

    #[test]
    fn stat_line_is_parsed_with_any_program_name() {
        let text = "12 (a) b (c)) S 7 12 12 0 -1 0 0 0 0 0 5 6 70 8 20 0 1 0 99 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(stat.program, "a) b (c)");
        assert_eq!(
            (stat.parent, stat.own, stat.waited, stat.started),
            (7, 11, 78, 99)
        );
    }

    #[test]
    fn time_of_short_lived_programs_is_what_no_sample_explains() {
        let mut samples = Samples::default();
        samples.roots.insert(10, 0);
        let processes = [
            (10, sample(1, "access-01", 200, 1000)),
            (11, sample(10, "kube-apiserver", 500, 0)),
            (12, sample(10, "kubectl", 100, 0)),
        ];
        let processes = processes.map(|(pid, sample)| ((pid, 0), sample));
        samples.processes.extend(processes);
        let times = samples.times();
        // 1,000 ticks of ended children, 600 of them of children that were sampled.
        assert_eq!(times.get(&0), Some(&[5.0, 0.0, 0.0, 0.0, 2.0, 5.0]));
    }

    #[test]
    fn conditions_that_differ_by_numbers_are_one_row() {
        assert_eq!(general("2 ready pods in a-123-4"), "# ready pods in a-#-#");
    }
}
