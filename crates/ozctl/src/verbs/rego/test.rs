//! `ozctl rego test`: runs tests as OPA does: rules with names that begin with `test_`.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use oz_rego::{Coverage, Outcome, Tests};
use regex::Regex;
use serde_json::{Value, json};

use super::check::Output;
use super::files;
use crate::context::{Context, Style};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output;
use crate::rego::timeout;

/// Run the tests of a Rego policy
///
/// Tests are rules whose names begin with test_, as `opa test` runs them. One that begins with
/// todo_test_ is skipped. `with` puts inputs, data, functions and the clock in their place.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl rego test policies/
  ozctl rego test policies/ --run expired
  ozctl rego test policies/ --coverage -o json

Exit codes: 0 if all tests passed, 1 if one failed or the policy does not compile,
2 if there was no test to run.")]
pub(super) struct Test {
    /// Files of Rego and of documents below data, and folders of them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Only tests whose path this expression finds
    #[arg(long, value_name = "REGEX")]
    run: Option<Regex>,
    /// The instant that time.now_ns() gives where a test gives none [default: now]
    #[arg(long, value_name = "INSTANT")]
    at: Option<Timestamp>,
    /// Show the lines that no test evaluated
    #[arg(long)]
    coverage: bool,
    /// How long one test may last
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = timeout)]
    timeout: Duration,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
}

impl Test {
    pub(super) fn run(self, context: &Context) -> Result<Exit> {
        let policy = files::policy(&self.files, true)?;
        let now = self.at.unwrap_or_else(Timestamp::now);
        let chosen = |rule: &oz_rego::Rule| match &self.run {
            Some(regex) => regex.is_match(&rule.path),
            None => true,
        };
        let tests = policy.test(chosen, now, self.timeout);
        let tests = tests.map_err(|error| Failure::new(error.to_string()))?;
        let passed = |outcome: &Outcome| matches!(outcome, Outcome::Passed | Outcome::Skipped);
        let failed = tests
            .tests
            .iter()
            .filter(|test| !passed(&test.outcome))
            .count();
        match self.output {
            Output::Json => context.print(&output::json(&self.as_json(&tests))?)?,
            Output::Text => self.as_text(context, &tests)?,
        }
        if tests.tests.is_empty() {
            context.say("there is no test: tests are rules with names that begin with test_");
            return Ok(Exit::NOTHING);
        }
        Ok(if failed == 0 {
            Exit::SUCCESS
        } else {
            Exit::FAILURE
        })
    }

    fn as_text(&self, context: &Context, tests: &Tests) -> Result<()> {
        for test in &tests.tests {
            let (style, said) = match &test.outcome {
                Outcome::Passed => continue,
                Outcome::Failed => (Style::Red, "FAILED".to_owned()),
                Outcome::Skipped => (Style::Yellow, "skipped".to_owned()),
                Outcome::Error(error) => (Style::Red, format!("ERROR {error}")),
            };
            let place = output::line(&format!("{}:{}", test.rule.file, test.rule.line));
            let place = context.paint_output(Style::Bold, &place);
            let said = context.paint_output(style, &output::line(&said));
            context.print(&format!("{place}: {}: {said}\n", test.rule.path))?;
            for print in &test.prints {
                context.print(&format!("  {}\n", output::line(print)))?;
            }
        }
        if self.coverage {
            for file in policies(tests) {
                context.print(&format!("{}\n", covered(file)))?;
            }
        }
        let count = |is: fn(&Outcome) -> bool| {
            let outcomes = tests.tests.iter().map(|test| &test.outcome);
            outcomes.filter(|outcome| is(outcome)).count()
        };
        let skipped = count(|outcome| matches!(outcome, Outcome::Skipped));
        let passed = count(|outcome| matches!(outcome, Outcome::Passed));
        let failed = tests.tests.len() - skipped - passed;
        let skipped = match skipped {
            0 => String::new(),
            skipped => format!(", {skipped} skipped"),
        };
        context.say(&format!("{passed} passed, {failed} failed{skipped}"));
        Ok(())
    }

    fn as_json(&self, tests: &Tests) -> Value {
        let run = tests.tests.iter().map(|test| {
            let (outcome, error) = match &test.outcome {
                Outcome::Passed => ("passed", None),
                Outcome::Failed => ("failed", None),
                Outcome::Skipped => ("skipped", None),
                Outcome::Error(error) => ("error", Some(error.to_string())),
            };
            json!({
                "test": test.rule.path, "file": test.rule.file, "line": test.rule.line,
                "outcome": outcome, "error": error, "prints": test.prints,
            })
        });
        let mut shown = json!({"tests": run.collect::<Vec<_>>()});
        if self.coverage {
            let files = policies(tests).map(|file| {
                json!({"file": file.file, "covered": file.covered, "notCovered": file.not_covered})
            });
            shown["coverage"] = files.collect();
        }
        shown
    }
}

/// Returns the coverage of all files but tests: a test file runs all its lines.
fn policies(tests: &Tests) -> impl Iterator<Item = &Coverage> {
    let files = tests.coverage.iter();
    files.filter(|file| !file.file.ends_with("_test.rego"))
}

fn covered(file: &Coverage) -> String {
    let all = file.covered.len() + file.not_covered.len();
    let lines: Vec<String> = ranges(file).into_iter().collect();
    let not = match lines.is_empty() {
        true => String::new(),
        false => format!("; not covered: {}", lines.join(", ")),
    };
    let name = output::line(&file.file);
    format!("{name}: {} of {all} lines covered{not}", file.covered.len())
}

/// Formats consecutive lines as one range.
fn ranges(file: &Coverage) -> Vec<String> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &line in &file.not_covered {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == line => *end = line,
            _ => ranges.push((line, line)),
        }
    }
    let shown = ranges.into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect()
}
