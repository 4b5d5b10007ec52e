//! OPA's own cases: each has OPA's answer, is refused by name, or is in the list of exceptions.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "helpers of tests: a failed one should stop where it failed, and reports figures"
)]

mod capabilities;
mod case;
mod fetch;
mod library;
mod outcome;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;

use case::Case;
use outcome::Outcome;

/// The maximum number of exceptions.
const MAX_EXCEPTIONS: usize = 20;

#[test]
fn case_of_opa_has_the_same_result_is_refused_by_name_or_is_listed() {
    let Some(opa) = fetch::opa() else { return };
    let exceptions = exceptions(include_str!("exceptions.txt"));
    let cases = case::load(&opa.join("v1/test/cases/testdata"));
    let mut same = 0;
    let mut refused: BTreeMap<String, u32> = BTreeMap::new();
    let mut different = BTreeSet::new();
    let mut unlisted = String::new();
    for (case, outcome) in cases.iter().zip(run(&cases)) {
        match outcome {
            Outcome::Same => same += 1,
            Outcome::Refused(name) => *refused.entry(name).or_default() += 1,
            Outcome::Differs(how) => {
                different.insert(case.note.as_str());
                if !exceptions.contains(case.note.as_str()) {
                    let _ = writeln!(unlisted, "{}: {how}", case.name);
                }
            }
        }
    }
    eprintln!("{} cases: {same} same, refused: {refused:?}", cases.len());
    assert!(
        unlisted.is_empty(),
        "cases that differ from OPA:\n{unlisted}"
    );
    let stale: Vec<_> = exceptions.difference(&different).collect();
    assert!(stale.is_empty(), "exceptions that do not differ: {stale:?}");
    assert!(exceptions.len() <= MAX_EXCEPTIONS, "too many exceptions");
    assert!(same > 3000, "only {same} cases were run");
}

/// Returns the notes of the exceptions.
fn exceptions(list: &str) -> BTreeSet<&str> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let notes = lines.map(|line| {
        let (note, reason) = line.rsplit_once(": ").unwrap();
        assert!(!reason.is_empty(), "{note} has no reason");
        note
    });
    notes.collect()
}

fn run(cases: &[Case]) -> Vec<Outcome> {
    let next = Mutex::new(0..cases.len());
    let outcomes = Mutex::new(vec![Outcome::Same; cases.len()]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(at) = next.lock().unwrap().next() else {
                        return;
                    };
                    let outcome = outcome::evaluate(&cases[at]);
                    outcomes.lock().unwrap()[at] = outcome;
                }
            });
        }
    });
    outcomes.into_inner().unwrap()
}
