//! Reading what `cargo test` prints. The harness has no form for programs that is stable; this one
//! has not changed in years, and whatever is not understood is kept as it is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a test needs to run, the least first.
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

/// A test binary, or the doc tests of a crate.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) name: String,
    pub(crate) tier: Tier,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Tests that did not run, and why.
    pub(crate) skipped: Vec<String>,
    pub(crate) took: Duration,
    /// Everything it said but which tests went well.
    pub(crate) said: Vec<String>,
    began: Instant,
    announced: usize,
    /// Tests that have ended since it said how many there are.
    ended: usize,
    /// Whether it has said how many there are and not yet what came of them.
    open: bool,
    /// Tests that the harness takes for passed, but that say they were skipped.
    gave_up: usize,
}

impl Binary {
    fn new(name: String, tier: Tier) -> Self {
        Self {
            name,
            tier,
            passed: 0,
            failed: 0,
            skipped: Vec::new(),
            took: Duration::ZERO,
            said: Vec::new(),
            began: Instant::now(),
            announced: 0,
            ended: 0,
            open: true,
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
        format!("{:4} of {} after {seconds} s", self.ended, self.announced)
    }

    fn take(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("running ") {
            let number = rest
                .split(' ')
                .next()
                .and_then(|number| number.parse().ok());
            self.announced = number.unwrap_or_default();
            self.ended = 0;
            self.open = true;
            return;
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, " passed");
            self.failed += count(counts, " failed");
            self.open = false;
            return;
        }
        if let Some((test, outcome)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "))
        {
            self.ended += 1;
            if outcome == "ok" {
                return;
            }
            // An example that is not meant to run, or what other tests run as a process, is no test
            // that was left out.
            if let Some(why) = outcome.strip_prefix("ignored") {
                if self.tier != Tier::Doc && !why.starts_with(NOT_A_TEST) {
                    self.skipped.push(format!("{test}{why}"));
                }
                return;
            }
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

    fn end(mut self) -> Self {
        self.took = self.began.elapsed();
        if self.open && self.announced > 0 {
            self.failed += 1;
            self.said
                .push("It ended before all of its tests had.".to_owned());
        }
        self.passed = self.passed.saturating_sub(self.gave_up);
        self
    }
}

/// What a test writes, past the harness's capture, that cannot run on this machine; its name and
/// why follow.
const SKIPPED: &str = "testkit: skipped ";
/// How the reason of an ignored function begins that is no test.
const NOT_A_TEST: &str = ", not a test";

fn count(counts: &str, what: &str) -> usize {
    let before = counts.split(what).next().unwrap_or_default();
    let number = before.rsplit(' ').next().unwrap_or_default();
    number.parse().unwrap_or_default()
}

/// All that is said, line by line.
#[derive(Debug)]
pub(crate) struct Output {
    /// What a binary is called, by its file name.
    names: BTreeMap<String, String>,
    running: Option<Binary>,
}

impl Output {
    pub(crate) const fn new(names: BTreeMap<String, String>) -> Self {
        Self {
            names,
            running: None,
        }
    }

    pub(crate) const fn running(&self) -> Option<&Binary> {
        self.running.as_ref()
    }

    /// Takes the next line; gives the binary that has ended if it says so.
    pub(crate) fn take(&mut self, line: &str) -> Option<Binary> {
        let text = line.trim_start();
        let started = if let Some(running) = text.strip_prefix("Running ") {
            self.binary(running)
        } else {
            text.strip_prefix("Doc-tests ").map(|name| {
                Binary::new(format!("{}, doc tests", name.replace('_', "-")), Tier::Doc)
            })
        };
        if let Some(started) = started {
            return self.running.replace(started).map(Binary::end);
        }
        if let Some(running) = &mut self.running {
            running.take(line);
        }
        None
    }

    /// Nothing more is said.
    pub(crate) fn end(self) -> Option<Binary> {
        self.running.map(Binary::end)
    }

    /// As in `tests/cluster/main.rs (target/debug/deps/cluster-0123456789abcdef)`.
    fn binary(&self, line: &str) -> Option<Binary> {
        let (source, program) = line.strip_suffix(')')?.split_once(" (")?;
        let file = program.rsplit('/').next().unwrap_or_default();
        let name = self.names.get(file).cloned();
        let tier = if source.starts_with("tests/recorded") {
            Tier::Recorded
        } else {
            Tier::Pure
        };
        Some(Binary::new(name.unwrap_or_else(|| file.to_owned()), tier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Binary> {
        let names = [("web-01".to_owned(), "oz-web, unit tests".to_owned())];
        let mut output = Output::new(names.into());
        let mut binaries: Vec<Binary> = text.lines().filter_map(|line| output.take(line)).collect();
        binaries.extend(output.end());
        binaries
    }

    #[test]
    fn binaries_are_counted_one_by_one() {
        let binaries = read(
            "     Running unittests src/lib.rs (target/debug/deps/web-01)\n\
             \nrunning 4 tests\ntest a ... ok\ntest b ... ignored, needs root\ntest c ... ok\n\
             test e ... ignored, not a test: a runs it\n\n\
             test result: ok. 2 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n     \
             Running tests/recorded/main.rs (target/debug/deps/recorded-02)\n\
             \nrunning 1 test\ntest d ... FAILED\n\nfailures:\n\n---- d stdout ----\nno d\n\n\nfailures:\n    d\n\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n   \
             Doc-tests oz_web\n\nrunning 1 test\ntest src/lib.rs - (line 3) ... ignored\n\n\
             test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        let counts = |binary: &Binary| (binary.passed, binary.failed, binary.skipped.len());
        assert_eq!(
            binaries.iter().map(counts).collect::<Vec<_>>(),
            [(2, 0, 1), (0, 1, 0), (0, 0, 0)]
        );
        assert_eq!(binaries[0].name, "oz-web, unit tests");
        assert_eq!(binaries[0].skipped, ["b, needs root"]);
        assert_eq!(binaries[1].tier, Tier::Recorded);
        assert!(binaries[1].said.contains(&"no d".to_owned()));
        assert_eq!(binaries[2].tier, Tier::Doc);
    }

    #[test]
    fn a_binary_that_dies_has_failed() {
        let binaries = read(
            "     Running unittests src/lib.rs (target/debug/deps/web-01)\n\nrunning 2 tests\n\
             test a ... ok\nerror: test failed, to rerun pass `-p oz-web`\n\n\
             Caused by:\n  process didn't exit successfully (signal: 9, SIGKILL: kill)\n",
        );
        assert_eq!((binaries[0].passed, binaries[0].failed), (0, 1));
        assert!(binaries[0].said.iter().any(|line| line.contains("SIGKILL")));
    }

    #[test]
    fn a_test_that_says_it_was_skipped_has_not_passed() {
        let binaries = read(
            "     Running tests/cluster.rs (target/debug/deps/cluster-03)\n\nrunning 2 tests\n\
             testkit: Kubernetes v1.35.4 at https://127.0.0.1:1 started in 1.0 s (/tmp/x)\n\
             testkit: skipped clocks: needs libfaketime\ntest clocks ... ok\ntest other ... ok\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!((binaries[0].passed, binaries[0].skipped.len()), (1, 1));
        assert_eq!(binaries[0].tier, Tier::Real);
    }
}
