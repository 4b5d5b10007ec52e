//! Tests that the example of docs/contributing/add-a-rule.md, a rule for all kinds, applies to this tree, is small, and is
//! described file by file.

#![allow(clippy::unwrap_used, reason = "a test should stop where it failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = "docs/contributing/add-a-rule.md";
const PATCH: &str = "docs/contributing/office-hours.patch";
/// The maximum number of Rust files, without tests.
const MAX_FILES: usize = 6;
/// The maximum number of added and removed lines in all files, without tests.
const MAX_LINES: usize = 250;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.unwrap().to_owned()
}

/// Returns the files that a patch changes, without tests, and the number of their added and removed lines.
fn changes(patch: &str) -> BTreeMap<&str, usize> {
    let files = patch.split("diff --git a/").skip(1);
    let changes = files.filter_map(|file| {
        let (name, rest) = file.split_once(" b/").unwrap();
        let (_, hunks) = rest.split_once("\n@@").unwrap();
        let code = hunks.split("\n+#[cfg(test)]\n").next().unwrap();
        let lines = code.lines().filter(|line| line.starts_with(['+', '-']));
        (!is_test(name)).then(|| (name, lines.count()))
    });
    changes.collect()
}

fn is_test(name: &str) -> bool {
    let mut parts = name.split('/');
    parts.any(|part| ["tests", "testing", "tests.rs"].contains(&part))
}

#[test]
fn example_of_a_rule_applies_to_this_tree() {
    let mut git = Command::new("git");
    git.args(["apply", "--check", PATCH]).current_dir(root());
    let output = git.output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{why}; the end of {PAGE} describes how to repair it"
    );
}

#[test]
fn example_of_a_rule_is_small_and_its_files_are_described() {
    let [page, patch] = [PAGE, PATCH].map(|file| fs::read_to_string(root().join(file)).unwrap());
    let changes = changes(&patch);
    let rust = changes.keys().filter(|name| name.ends_with(".rs")).count();
    assert!((1..=MAX_FILES).contains(&rust), "{changes:?}");
    let lines: usize = changes.values().sum();
    assert!((1..=MAX_LINES).contains(&lines), "{lines}: {changes:?}");
    for name in changes.keys() {
        assert!(
            page.contains(&format!("| `{name}` |")),
            "{PAGE} has no row for {name}"
        );
    }
}

#[test]
fn only_lines_without_tests_are_counted() {
    let patch = "diff --git a/a/b.rs b/a/b.rs\n--- a/a/b.rs\n+++ b/a/b.rs\n@@ -1 +1,5 @@ fn a() {\n \
                 one\n-two\n+three\n@@ -9 +13 @@\n+four\n+#[cfg(test)]\n+five\n\
                 diff --git a/a/tests/c.rs b/a/tests/c.rs\n--- a/a/tests/c.rs\n+++ b/a/tests/c.rs\n@@ -1 +1 @@\n+six\n";
    assert_eq!(changes(patch), BTreeMap::from([("a/b.rs", 3)]));
}
