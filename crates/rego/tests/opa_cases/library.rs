//! A directory of policies with tests: each test has the same outcome as in OPA.
//!
//! `OZ_REGO_LIBRARY` names the directory; by default, it is `library` in this folder. An example is the folder `src` of
//! <https://github.com/open-policy-agent/gatekeeper-library>, which no proxy serves as a module of Go.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use oz_rego::{Language, Outcome, Policy};
use serde::Deserialize;

const OURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/opa_cases/library");

/// The outcomes of tests, by their package, name and line.
type Outcomes = BTreeMap<(String, String, u32), &'static str>;

#[test]
fn tests_of_a_library_have_the_outcomes_of_opa() {
    let library = std::env::var_os("OZ_REGO_LIBRARY").map(PathBuf::from);
    let library = library.unwrap_or_else(|| PathBuf::from(OURS));
    let mut folders = Vec::new();
    list(&library.canonicalize().unwrap(), &mut folders);
    folders.sort();
    let (mut count, mut differences) = (0, Vec::new());
    for folder in &folders {
        match ours(folder) {
            Err(errors) => differences.push(format!("{}: {errors}", folder.display())),
            Ok((language, ours)) => {
                count += ours.len();
                let theirs = opas(folder, language);
                if ours != theirs {
                    let what = format!("{}: {ours:?}, and OPA {theirs:?}", folder.display());
                    differences.push(what);
                }
            }
        }
    }
    eprintln!(
        "{} folders, {count} tests, {} folders differ",
        folders.len(),
        differences.len()
    );
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(count > 0, "{} has no test", library.display());
}

/// Lists the folders that have a module with tests.
fn list(folder: &Path, folders: &mut Vec<PathBuf>) {
    if modules(folder).iter().any(|path| is_test(path)) {
        folders.push(folder.to_owned());
    }
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, folders);
        }
    }
}

fn is_test(path: &Path) -> bool {
    path.to_string_lossy().ends_with("_test.rego")
}

fn modules(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut modules: Vec<PathBuf> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "rego")
        })
        .collect();
    modules.sort();
    modules
}

/// Runs the tests of a folder here, as `ozctl rego test` does.
fn ours(folder: &Path) -> Result<(Language, Outcomes), String> {
    let texts: Vec<(String, String)> = modules(folder)
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path.display().to_string(), text)
        })
        .collect();
    let policy = Policy::compile(&texts).map_err(|errors| errors.to_string())?;
    let tests = policy.test(|_| true, Timestamp::now(), Duration::from_secs(10));
    let tests = tests.map_err(|error| error.to_string())?.tests.into_iter();
    let outcomes = tests.map(|test| {
        let (package, name) = test.rule.path.rsplit_once('.').unwrap();
        let outcome = match test.outcome {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::Skipped => "skipped",
            Outcome::Error(_) => "error",
        };
        (
            (package.to_owned(), name.to_owned(), test.rule.line),
            outcome,
        )
    });
    Ok((policy.language(), outcomes.collect()))
}

/// A test in the output of `opa test`.
#[derive(Deserialize)]
struct OpasTest {
    location: Location,
    package: String,
    name: String,
    #[serde(default)]
    fail: bool,
    #[serde(default)]
    skip: bool,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Location {
    row: u32,
}

/// Runs the tests of a folder in OPA, of the version with which the other tests compare.
fn opas(folder: &Path, language: Language) -> Outcomes {
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/tools/opa");
    let mut opa = Command::new("go");
    opa.args(["tool", "opa", "test", "--format=json"])
        .args((language == Language::V0).then_some("--v0-compatible"))
        .args(modules(folder))
        .current_dir(tools);
    let output = opa
        .output()
        .expect("`go` runs OPA; install Go 1.26 or newer");
    let tests: Vec<OpasTest> = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        panic!("{}: OPA has no results: {error}: {said}", folder.display())
    });
    let outcomes = tests.into_iter().map(|test| {
        let outcome = match (test.error, test.skip, test.fail) {
            (Some(_), ..) => "error",
            (None, true, _) => "skipped",
            (None, false, true) => "failed",
            (None, false, false) => "passed",
        };
        let package = test.package.trim_start_matches("data.").to_owned();
        ((package, test.name, test.location.row), outcome)
    });
    outcomes.collect()
}
