//! The sum of all test binaries, and whether it is good enough.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::output::{Binary, Tier};
use crate::screen::{Screen, Style, columns};

/// What came of all tests.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    tiers: BTreeMap<Tier, Sum>,
    failed: Vec<String>,
    skipped: Vec<String>,
    lacking: Vec<String>,
}

#[derive(Debug, Default)]
struct Sum {
    binaries: usize,
    passed: usize,
    failed: usize,
    skipped: usize,
    took: Duration,
}

impl Summary {
    pub(crate) fn add(&mut self, binary: &Binary) {
        let sum = self.tiers.entry(binary.tier).or_default();
        sum.binaries += usize::from(!binary.is_empty());
        sum.passed += binary.passed;
        sum.failed += binary.failed;
        sum.skipped += binary.skipped.len();
        sum.took += binary.took;
        let name = &binary.name;
        if binary.failed > 0 {
            self.failed.push(name.clone());
        }
        let skipped = binary.skipped.iter();
        self.skipped
            .extend(skipped.map(|test| format!("{name}: {test}")));
    }

    /// Something is missing on this machine, and `so` some tests could not do what they are for.
    pub(crate) fn lacks(&mut self, what: &str, so: &str) {
        self.lacking.push(format!("{what} is missing: {so}"));
    }

    /// Something else than a test found so much wrong.
    pub(crate) fn fails(&mut self, what: &str, findings: usize) {
        self.failed
            .push(format!("{what}: {findings} findings, see above"));
    }

    /// Cargo says that something went wrong. If no test did, it was something else.
    pub(crate) fn cargo_failed(&mut self) {
        if self.failed.is_empty() {
            self.failed
                .push("cargo test itself: see the log".to_owned());
        }
    }

    fn total(&self, of: impl Fn(&Sum) -> usize) -> usize {
        self.tiers.values().map(of).sum()
    }

    /// Passed, failed, skipped. Where everything is `required`, what was left out has failed.
    fn counts(&self, required: bool) -> (usize, usize, usize) {
        let tests = self.total(|sum| sum.failed);
        // A failure of something else than a test counts as one.
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

    /// A table of the tiers, what failed or was left out, and the counts alone on the last line.
    pub(crate) fn text(&self, screen: Screen, required: bool, log: &Path) -> String {
        let head = ["TESTS", "BINARIES", "PASSED", "FAILED", "SKIPPED", "TIME"];
        let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
        for (tier, sum) in self.tiers.iter().filter(|(_, sum)| sum.binaries > 0) {
            let number = |number: usize, width: usize| format!("{number:width$}");
            rows.push(vec![
                tier.name().to_owned(),
                number(sum.binaries, 8),
                number(sum.passed, 6),
                number(sum.failed, 6),
                number(sum.skipped, 7),
                format!("{:6.1} s", sum.took.as_secs_f64()),
            ]);
        }
        let mut lines = vec![String::new()];
        lines.extend(columns(&rows));
        lines.push(String::new());
        let failures = self.failed.iter().map(|name| format!("failed: {name}"));
        lines.extend(failures.map(|line| screen.paint(Style::Bad, &line)));
        lines.extend(self.skipped.iter().map(|test| format!("skipped: {test}")));
        lines.extend(self.lacking.iter().cloned());
        if required && self.skipped.len() + self.lacking.len() > 0 {
            lines.push("OZ_REQUIRE_ALL=1: what was left out counts as failed.".to_owned());
        }
        lines.push(format!("All that was said: {}", log.display()));
        let (passed, failed, skipped) = self.counts(required);
        lines.push(match skipped {
            0 => format!("{passed} passed, {failed} failed"),
            _ => format!("{passed} passed, {failed} failed, {skipped} skipped"),
        });
        lines.join("\n")
    }
}
