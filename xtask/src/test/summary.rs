//! The sum of all test binaries, and the verdict about it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::output::{Binary, Tier};
use xtask::screen::{Screen, Style, columns};

/// The results of all tests.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    tiers: BTreeMap<Tier, Sum>,
    suites: BTreeMap<String, Sum>,
    failed: Vec<String>,
    /// Tests that failed at first and passed when nothing else ran, with their failure.
    flaky: Vec<(String, Vec<String>)>,
    skipped: Vec<String>,
    lacking: Vec<String>,
}

/// The number of suites in the table of the slowest.
const SLOWEST: usize = 10;

#[derive(Debug, Default)]
struct Sum {
    binaries: usize,
    passed: usize,
    failed: usize,
    skipped: usize,
    took: Duration,
    longest: Duration,
}

impl Sum {
    fn add(&mut self, binary: &Binary) {
        self.binaries += usize::from(!binary.is_empty());
        self.passed += binary.passed;
        self.failed += binary.failed;
        self.skipped += binary.skipped.len();
        self.took += binary.took;
        self.longest = self.longest.max(binary.took);
    }
}

impl Summary {
    pub(crate) fn add(&mut self, binary: &Binary) {
        self.tiers.entry(binary.tier).or_default().add(binary);
        let suite = self.suites.entry(binary.suite.clone());
        suite.or_default().add(binary);
        let name = &binary.name;
        if binary.failed > 0 {
            self.failed.push(name.clone());
        }
        let skipped = binary.skipped.iter();
        self.skipped
            .extend(skipped.map(|test| format!("{name}: {test}")));
    }

    /// Records that the tests of the binary that failed at the same time as other suites have passed alone.
    pub(crate) fn flaky(&mut self, binary: &Binary) {
        let tests = binary.failures.iter().map(|test| {
            let name = format!("{}: {test}", binary.suite);
            (name, binary.failure(test))
        });
        self.flaky.extend(tests);
    }

    /// Records that a requirement is missing on this machine, and that some tests `so` could not do their
    /// work.
    pub(crate) fn lacks(&mut self, what: &str, so: &str) {
        self.lacking.push(format!("{what} is missing: {so}"));
    }

    /// Records this number of findings by a check other than a test.
    pub(crate) fn fails(&mut self, what: &str, findings: usize) {
        self.failed
            .push(format!("{what}: {findings} findings, see above"));
    }

    /// Checks whether a test failed.
    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    fn total(&self, of: impl Fn(&Sum) -> usize) -> usize {
        self.tiers.values().map(of).sum()
    }

    /// Returns the numbers of passed, failed and skipped tests. Where everything is `required`, skipped tests
    /// have failed.
    fn counts(&self, required: bool) -> (usize, usize, usize) {
        let tests = self.total(|sum| sum.failed);
        // A failure of a check other than a test counts as one.
        let failed = tests.max(usize::from(!self.failed.is_empty()));
        let skipped = self.total(|sum| sum.skipped);
        let passed = self.total(|sum| sum.passed);
        if required {
            (passed, failed + skipped + self.lacking.len(), 0)
        } else {
            (passed, failed, skipped)
        }
    }

    pub(crate) fn is_good(&self, required: bool) -> bool {
        let (passed, failed, _) = self.counts(required);
        passed > 0 && failed == 0
    }

    /// Returns the table of the slowest suites, with all of their parts.
    fn slowest(&self) -> Vec<String> {
        let mut suites: Vec<(&String, &Sum)> = self.suites.iter().collect();
        suites.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.took));
        let head = ["SLOWEST SUITES", "TESTS", "PARTS", "TIME", "LONGEST PART"];
        let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
        for (name, sum) in suites.into_iter().take(SLOWEST) {
            rows.push(vec![
                name.clone(),
                format!("{:5}", sum.passed + sum.failed + sum.skipped),
                format!("{:5}", sum.binaries),
                format!("{:6.1} s", sum.took.as_secs_f64()),
                format!("{:10.1} s", sum.longest.as_secs_f64()),
            ]);
        }
        columns(&rows)
    }

    /// Returns the tables of the tiers and of the slowest suites, the failed and skipped tests, and the
    /// counts alone on the last line. Suites run at the same time: `took` is less than the sum of their
    /// times.
    pub(crate) fn text(
        &self,
        screen: Screen,
        required: bool,
        log: &Path,
        took: Duration,
    ) -> String {
        let head = ["TESTS", "RUNS", "PASSED", "FAILED", "SKIPPED", "TIME"];
        let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
        for (tier, sum) in self.tiers.iter().filter(|(_, sum)| sum.binaries > 0) {
            let number = |number: usize, width: usize| format!("{number:width$}");
            rows.push(vec![
                tier.name().to_owned(),
                number(sum.binaries, 4),
                number(sum.passed, 6),
                number(sum.failed, 6),
                number(sum.skipped, 7),
                format!("{:6.1} s", sum.took.as_secs_f64()),
            ]);
        }
        let mut lines = vec![String::new()];
        lines.extend(columns(&rows));
        lines.push(String::new());
        lines.extend(self.slowest());
        lines.push(String::new());
        let failures = self.failed.iter().map(|name| format!("failed: {name}"));
        lines.extend(failures.map(|line| screen.paint(Style::Bad, &line)));
        for (test, failure) in &self.flaky {
            lines.push(screen.paint(Style::Bad, &format!("flaky: {test}")));
            lines.extend(failure.iter().map(|line| format!("    {line}")));
        }
        lines.extend(self.skipped.iter().map(|test| format!("skipped: {test}")));
        lines.extend(self.lacking.iter().cloned());
        if required && self.skipped.len() + self.lacking.len() > 0 {
            lines.push("OZ_REQUIRE_ALL=1: skipped tests count as failed.".to_owned());
        }
        let (minutes, seconds) = (took.as_secs() / 60, took.as_secs() % 60);
        lines.push(format!(
            "Run in {minutes} min {seconds} s. All output: {}",
            log.display()
        ));
        let (passed, failed, skipped) = self.counts(required);
        lines.push(match skipped {
            0 => format!("{passed} passed, {failed} failed"),
            _ => format!("{passed} passed, {failed} failed, {skipped} skipped"),
        });
        lines.join("\n")
    }
}
