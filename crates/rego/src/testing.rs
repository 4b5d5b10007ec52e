//! Tests in Rego, as in OPA: rules with names that begin with `test_`.
//! See <https://www.openpolicyagent.org/docs/policy-testing>.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use regorus::unstable::{Module, Ref, Rule as Ast};
use regorus::{Engine, Value};

use crate::builtins::set_clock;
use crate::error::EvaluateError;
use crate::evaluate::{failed, limit, nanoseconds};
use crate::policy::{Policy, Rule};
use crate::{functions, thread};

/// The outcome of a test.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The rule is true.
    Passed,
    /// The rule is undefined or false.
    Failed,
    /// The name of the rule begins with `todo_`.
    Skipped,
    /// The policy failed.
    Error(EvaluateError),
}

/// A test, and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// The rule of the test.
    pub rule: Rule,
    /// The outcome.
    pub outcome: Outcome,
    /// The printed lines.
    pub prints: Vec<String>,
    /// The duration.
    pub took: Duration,
}

/// The lines of a module that tests covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// The name of the module.
    pub file: String,
    /// The lines that were evaluated.
    pub covered: BTreeSet<u32>,
    /// The lines that were not evaluated.
    pub not_covered: BTreeSet<u32>,
}

/// The results of all tests.
#[derive(Clone, Debug, PartialEq)]
pub struct Tests {
    /// The tests, in the order of modules and lines.
    pub tests: Vec<Test>,
    /// The coverage, in the order of modules; modules with tests are included.
    pub coverage: Vec<Coverage>,
}

impl Policy {
    /// Runs the tests among its rules that `chosen` accepts. `time.now_ns()` is `now` unless a test replaces it; each
    /// test may take `time`.
    ///
    /// # Errors
    /// No test can be run; the error of a single test is its [`Outcome`].
    pub fn test(
        &self,
        chosen: impl Fn(&Rule) -> bool,
        now: Timestamp,
        time: Duration,
    ) -> Result<Tests, EvaluateError> {
        let now = nanoseconds(now)?;
        let mut engine = Engine::clone(&self.engine);
        let mut tests = Vec::new();
        for module in engine.get_modules() {
            for ast in &module.policy {
                let rule = functions::rule(module, ast);
                if is_test(&rule) && chosen(&rule) {
                    tests.push((module.clone(), ast.clone(), rule));
                }
            }
        }
        thread::run(None, move || {
            let ready = set_clock(&mut engine, now);
            ready.map_err(|error| failed(&error, time))?;
            limit(&mut engine, time);
            engine.set_enable_coverage(true);
            engine.clear_coverage_data();
            let tests = tests.into_iter();
            let tests =
                tests.map(|(module, ast, rule)| run(&mut engine, &module, &ast, rule, time));
            let tests = tests.collect();
            let report = engine.get_coverage_report();
            let report = report.map_err(|error| failed(&error, time))?;
            let coverage = report.files.into_iter().map(|file| Coverage {
                file: file.path,
                covered: file.covered,
                not_covered: file.not_covered,
            });
            Ok(Tests {
                tests,
                coverage: coverage.collect(),
            })
        })?
    }
}

fn is_test(rule: &Rule) -> bool {
    let name = rule.path.rsplit('.').next();
    name.is_some_and(|name| name.starts_with("test_") || name.starts_with("todo_test_"))
}

/// Runs one rule directly, not by its path: each rule with the same name is a separate test.
fn run(
    engine: &mut Engine,
    module: &Ref<Module>,
    ast: &Ref<Ast>,
    rule: Rule,
    time: Duration,
) -> Test {
    let started = Instant::now();
    let skipped = rule
        .path
        .rsplit('.')
        .next()
        .is_some_and(|name| name.starts_with("todo_"));
    let outcome = if skipped {
        Outcome::Skipped
    } else {
        match engine.eval_rule_in_module(module, ast, false) {
            Err(error) => Outcome::Error(failed(&error, time)),
            Ok(data) => match rule.path.split('.').fold(&data, |value, name| &value[name]) {
                Value::Undefined | Value::Bool(false) => Outcome::Failed,
                _ => Outcome::Passed,
            },
        }
    };
    Test {
        rule,
        outcome,
        prints: engine.take_prints().unwrap_or_default(),
        took: started.elapsed(),
    }
}
