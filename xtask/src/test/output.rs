//! Parser of the output of a test binary. The harness has no stable machine-readable format; this one has not
//! changed in years, and unknown lines are kept as they are.

use std::time::{Duration, Instant};

/// The requirements of a test, the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    Pure,
    Recorded,
    Real,
    Doc,
}

impl Tier {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pure => "unit, snapshot, property",
            Self::Recorded => "recorded API server",
            Self::Real => "real API server",
            Self::Doc => "doc tests",
        }
    }
}

/// The result of a test binary, of a part of one, or of the doc tests.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    /// The suite to which it belongs.
    pub(crate) suite: String,
    pub(crate) name: String,
    pub(crate) tier: Tier,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// The failed tests, by name, as far as they had ended.
    pub(crate) failures: Vec<String>,
    /// Tests that did not run, and why.
    pub(crate) skipped: Vec<String>,
    pub(crate) took: Duration,
    /// The ended tests and their seconds, where the harness reports them.
    pub(crate) times: Vec<(String, f64)>,
    /// All of its output except the lines of passed tests.
    pub(crate) said: Vec<String>,
    began: Instant,
    announced: usize,
    /// Tests that have ended since it announced their number.
    ended: usize,
    /// Whether it has announced the number of tests and not yet their result.
    open: bool,
    /// The test that the harness has named, without its outcome yet.
    begun: Option<String>,
    /// Number of those tests that passed.
    well: usize,
    /// Tests that run for long, and have not ended.
    slow: Vec<String>,
    /// Tests that the harness counts as passed, but that report that they were skipped.
    gave_up: usize,
}

impl Binary {
    /// Creates the result of a binary that begins now.
    pub(crate) fn new(suite: String, name: String, tier: Tier) -> Self {
        Self {
            suite,
            name,
            tier,
            passed: 0,
            failed: 0,
            failures: Vec::new(),
            skipped: Vec::new(),
            took: Duration::ZERO,
            times: Vec::new(),
            said: Vec::new(),
            began: Instant::now(),
            announced: 0,
            ended: 0,
            well: 0,
            open: true,
            begun: None,
            slow: Vec::new(),
            gave_up: 0,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.passed + self.failed + self.skipped.len() == 0
    }

    pub(crate) fn counts(&self) -> String {
        let mut text = format!("{:4} passed", self.passed);
        for (count, what) in [(self.failed, "failed"), (self.skipped.len(), "skipped")] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        text
    }

    pub(crate) fn progress(&self) -> String {
        let seconds = self.began.elapsed().as_secs();
        format!("{} of {} after {seconds} s", self.ended, self.announced)
    }

    /// Reads the next line of its output.
    pub(crate) fn take(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("running ") {
            let number = rest
                .split(' ')
                .next()
                .and_then(|number| number.parse().ok());
            self.announced = number.unwrap_or_default();
            self.ended = 0;
            self.well = 0;
            self.open = true;
            return;
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, " passed");
            self.failed += count(counts, " failed");
            self.open = false;
            return;
        }
        let named = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "));
        if let Some((test, rest)) = named {
            if is_outcome(rest) {
                return self.ended(test, rest);
            }
            // With one test at a time, the harness prints the name first, and the outcome after all output of
            // the test.
            self.begun = Some(test.to_owned());
            return self.take(rest);
        }
        if is_outcome(line)
            && let Some(test) = self.begun.take()
        {
            return self.ended(&test, line);
        }
        if let Some((test, _)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(RUNS))
        {
            self.slow.push(test.to_owned());
        }
        if let Some(skipped) = line.strip_prefix(SKIPPED) {
            self.gave_up += 1;
            self.skipped.push(skipped.to_owned());
        }
        if line.starts_with("testkit: Kubernetes ") {
            self.tier = Tier::Real;
        }
        if !line.trim().is_empty() {
            self.said.push(line.to_owned());
        }
    }

    /// Returns the failed tests, if the binary ran to its end and has no other failure. `None` also for many of them:
    /// they share a defect, and each may take minutes to fail again.
    pub(crate) fn failed_alone(&self) -> Option<&[String]> {
        let named = !self.open && self.failed == self.failures.len();
        (named && (1..=MAX_ALONE).contains(&self.failed)).then_some(&self.failures)
    }

    /// Records that a test has ended with this outcome.
    fn ended(&mut self, test: &str, outcome: &str) {
        self.ended += 1;
        self.slow.retain(|slow| slow != test);
        let (outcome, seconds) = split_time(outcome);
        self.times
            .extend(seconds.map(|seconds| (test.to_owned(), seconds)));
        match outcome {
            "ok" => self.well += 1,
            "FAILED" => {
                self.failures.push(test.to_owned());
                self.said.push(format!("test {test} ... {outcome}"));
            }
            // An example that is not intended to run, or a function that other tests run as a process, is not a
            // skipped test.
            _ => {
                let why = outcome.strip_prefix("ignored").unwrap_or(outcome);
                if self.tier != Tier::Doc && !why.starts_with(NOT_A_TEST) {
                    self.skipped.push(format!("{test}{why}"));
                }
            }
        }
    }

    /// Returns the first lines of the output of a failed test.
    pub(crate) fn failure(&self, test: &str) -> Vec<String> {
        let head = format!("---- {test} stdout ----");
        let printed = self.said.iter().skip_while(|line| **line != head).skip(1);
        let printed = printed.take_while(|line| !line.starts_with("---- ") && *line != "failures:");
        printed.take(FAILURE_LINES).cloned().collect()
    }

    /// Counts the failed tests as passed, since they passed when nothing else ran.
    pub(crate) fn passed_alone(&mut self) {
        self.passed += std::mem::take(&mut self.failed);
    }

    /// Records that none of its tests ends any more, so that it is killed.
    pub(crate) fn hangs(&mut self) {
        if self.slow.is_empty() {
            return;
        }
        self.said
            .push(format!("These do not end: {}.", self.slow.join(", ")));
        // If no other test remains, all failed tests are known by name.
        if self.ended + self.slow.len() == self.announced {
            self.failures.append(&mut self.slow);
            self.failed = self.failures.len();
            self.passed += self.well;
            self.open = false;
        }
    }

    /// Records its end, with success or with this error.
    pub(crate) fn end(mut self, ended: Result<(), String>) -> Self {
        self.took = self.began.elapsed();
        if self.open && self.announced > 0 {
            self.failed += 1;
            self.said
                .push("It ended before all of its tests had.".to_owned());
        }
        if let Err(why) = ended {
            self.failed = self.failed.max(1);
            self.said.push(why);
        }
        self.passed = self.passed.saturating_sub(self.gave_up);
        self
    }
}

/// The number of lines of a failure that the summary repeats.
const FAILURE_LINES: usize = 12;
/// The maximum number of failed tests of a binary that run once more.
const MAX_ALONE: usize = 4;
/// The text after the name of a test that does not end soon.
const RUNS: &str = " has been running for over ";
/// The beginning of the line that a test writes, past the harness's capture, if it cannot run on this
/// machine; its name and the reason follow.
const SKIPPED: &str = "testkit: skipped ";
/// The beginning of the reason of an ignored function that is not a test.
const NOT_A_TEST: &str = ", not a test";

/// Returns whether the text is the outcome of a test.
fn is_outcome(text: &str) -> bool {
    let (outcome, _) = split_time(text);
    outcome == "ok" || outcome == "FAILED" || outcome.starts_with("ignored")
}

/// Splits the outcome of a test and, with `--report-time`, its seconds: `ok <1.234s>`.
fn split_time(outcome: &str) -> (&str, Option<f64>) {
    let split = outcome
        .strip_suffix("s>")
        .and_then(|rest| rest.split_once(" <"));
    match split.and_then(|(outcome, seconds)| Some((outcome, seconds.parse().ok()?))) {
        Some((outcome, seconds)) => (outcome, Some(seconds)),
        None => (outcome, None),
    }
}

fn count(counts: &str, what: &str) -> usize {
    let before = counts.split(what).next().unwrap_or_default();
    let number = before.rsplit(' ').next().unwrap_or_default();
    number.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(tier: Tier, text: &str) -> Binary {
        let mut binary = Binary::new("oz-web, web".to_owned(), "oz-web, web".to_owned(), tier);
        for line in text.lines() {
            binary.take(line);
        }
        binary
    }

    fn read(tier: Tier, text: &str, ended: Result<(), String>) -> Binary {
        binary(tier, text).end(ended)
    }

    fn counts(binary: &Binary) -> (usize, usize, usize) {
        (binary.passed, binary.failed, binary.skipped.len())
    }

    #[test]
    fn passed_failed_and_skipped_tests_are_counted() {
        let well = read(
            Tier::Pure,
            "\nrunning 4 tests\ntest a ... ok\ntest b ... ignored, needs root\ntest c ... ok\n\
             test e ... ignored, not a test: a runs it\n\n\
             test result: ok. 2 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
            Ok(()),
        );
        assert_eq!(counts(&well), (2, 0, 1));
        assert_eq!(well.skipped, ["b, needs root"]);
        let badly = read(
            Tier::Recorded,
            "\nrunning 1 test\ntest d ... FAILED\n\nfailures:\n\n---- d stdout ----\nno d\n\n\nfailures:\n    d\n\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
            Err("it ended with exit status: 101".to_owned()),
        );
        assert_eq!(counts(&badly), (0, 1, 0));
        assert!(badly.said.contains(&"no d".to_owned()));
        assert_eq!(badly.failed_alone(), Some(["d".to_owned()].as_slice()));
        assert_eq!(badly.failure("d"), ["no d"]);
        assert_eq!(well.failed_alone(), None);
    }

    #[test]
    fn many_failed_tests_do_not_run_once_more() {
        for (count, again) in [(MAX_ALONE, true), (MAX_ALONE + 1, false)] {
            let lines: String = (0..count)
                .map(|one| format!("test t{one} ... FAILED\n"))
                .collect();
            let text = format!(
                "running {count} tests\n{lines}\
                 test result: FAILED. 0 passed; {count} failed; 0 ignored; 0 measured; 0 filtered out\n"
            );
            let ended = read(
                Tier::Pure,
                &text,
                Err("it ended with exit status: 101".to_owned()),
            );
            assert_eq!(ended.failed_alone().is_some(), again, "{count}");
        }
    }

    #[test]
    fn reported_times_are_kept_and_do_not_hide_the_outcome() {
        let timed = read(
            Tier::Pure,
            "running 2 tests\ntest a ... ok <1.500s>\ntest b ... FAILED <0.001s>\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n",
            Err("it ended with exit status: 101".to_owned()),
        );
        assert_eq!(counts(&timed), (1, 1, 0));
        assert_eq!(
            timed.times,
            [("a".to_owned(), 1.5), ("b".to_owned(), 0.001)]
        );
        assert_eq!(timed.failed_alone(), Some(["b".to_owned()].as_slice()));
    }

    #[test]
    fn outcome_that_comes_after_other_output_is_that_of_the_test_that_was_named() {
        let alone = read(
            Tier::Pure,
            "running 2 tests\n\
             test a ... testkit: Kubernetes v1.35.4 at https://127.0.0.1:1 started in 1.0 s (/tmp/x)\nok\n\
             test b ... a line\nFAILED <2.000s>\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n",
            Err("it ended with exit status: 101".to_owned()),
        );
        assert_eq!(alone.tier, Tier::Real);
        assert_eq!(alone.times, [("b".to_owned(), 2.0)]);
        assert_eq!(alone.failed_alone(), Some(["b".to_owned()].as_slice()));
    }

    #[test]
    fn doc_tests_of_several_crates_are_counted_together() {
        let docs = read(
            Tier::Doc,
            "   Doc-tests oz_web\n\nrunning 1 test\ntest src/lib.rs - (line 3) ... ignored\n\n\
             test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             \n   Doc-tests oz_core\n\nrunning 2 tests\ntest a ... ok\ntest b ... ok\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
            Ok(()),
        );
        assert_eq!(counts(&docs), (2, 0, 0));
    }

    #[test]
    fn a_binary_that_dies_has_failed() {
        let died = read(
            Tier::Pure,
            "\nrunning 2 tests\ntest a ... ok\n",
            Err("it ended with signal: 9 (SIGKILL)".to_owned()),
        );
        assert_eq!((died.passed, died.failed), (0, 1));
        assert!(died.said.iter().any(|line| line.contains("SIGKILL")));
        assert_eq!(died.failed_alone(), None);
        let silent = read(
            Tier::Pure,
            "",
            Err("it ended with exit status: 1".to_owned()),
        );
        assert_eq!(counts(&silent), (0, 1, 0));
    }

    #[test]
    fn of_a_binary_that_hangs_the_tests_that_do_not_end_have_failed() {
        let end = |mut binary: Binary| {
            binary.hangs();
            binary.end(Err("it printed nothing for 600s, and was killed".to_owned()))
        };
        let mut hung = binary(
            Tier::Pure,
            "\nrunning 4 tests\ntest a ... ok\ntest b has been running for over 60 seconds\n\
             test c has been running for over 60 seconds\ntest c ... ok\n",
        );
        // A test that has not begun is unknown by name.
        assert_eq!(end(hung.clone()).failed_alone(), None);
        hung.take("test d ... ignored, not a test: a runs it");
        let hung = end(hung);
        assert_eq!(counts(&hung), (2, 1, 0));
        assert_eq!(hung.failed_alone(), Some(["b".to_owned()].as_slice()));
    }

    #[test]
    fn a_test_that_says_it_was_skipped_has_not_passed() {
        let some = read(
            Tier::Pure,
            "running 2 tests\n\
             testkit: Kubernetes v1.35.4 at https://127.0.0.1:1 started in 1.0 s (/tmp/x)\n\
             testkit: skipped clocks: needs libfaketime\ntest clocks ... ok\ntest other ... ok\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
            Ok(()),
        );
        assert_eq!(counts(&some), (1, 0, 1));
        assert_eq!(some.tier, Tier::Real);
    }
}
