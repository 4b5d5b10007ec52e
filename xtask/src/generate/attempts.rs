//! The page with the attempts to exceed granted access: of users, from the doc comments of the hostile suites; of agents in
//! harness runs, from those of the suite of the pod's network, and from a table for the suites without such comments.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::agents::AGENTS;

/// The hostile suites of users: each test is a row.
const USERS: [&str; 2] = ["e2e/tests/hostile", "e2e/tests/transient/hostile"];
/// The hostile suites of agents, in a network namespace and in a run on a real node: each test is a row.
const AGENTS_TESTS: [&str; 2] = [
    "crates/harness/tests/network/hostile",
    "e2e/tests/node/interception/attempts",
];
const USERS_TEXT: &str = "\
<!-- Generated from the hostile suites by `cargo xtask generate`; do not edit. -->

# Attempts to exceed granted access, and their results

Each row is a test on a real API server, with oz under its own RBAC roles. The tests open
connections in enforcing namespaces; [the guide](../guides/enforcement.md) describes which
connections observing namespaces allow.

Attempts of a user to continue a session after its end are tested on a real node
([e2e/tests/node/sessions.rs](../../e2e/tests/node/sessions.rs),
[script.rs](../../e2e/tests/node/script.rs)). oz cannot terminate every process there, for
example a process that is forked twice and drops its environment, its session and its streams,
or is the last to hold them: see [processes of a session](../concepts/sessions.md).

Attempts of an agent in a harness run are [below](#attempts-of-an-agent-in-a-harness-run).
";
const AGENTS_TEXT: &str = "
## Attempts of an agent in a harness run

The agent tries to reach a destination or a value that is not granted; [isolation](../concepts/isolation.md)
describes the layers that prevent it. The tests in `e2e/tests/node` are about one agent in the pod of a run on a real
node, once with its NetworkPolicy and once while every NetworkPolicy is deleted again and again. The tests of the network run in a network namespace with the table of
a run, and the others without a pod.

The audit trail has a record of each attempt that reaches the proxy; the tests on the node require it, also for attempts
without a word about it below. An attempt that the kernel denies has none: the log of the kernel and the counters of its
rules are readable with NET_ADMIN only, which no container has while the agent runs.
";
const HEAD: &str = "\n| attempt | result | test |\n|---|---|---|\n";

/// Returns the page.
pub(super) fn page(root: &Path) -> Result<String> {
    let mut page = format!("{USERS_TEXT}{HEAD}");
    for directory in USERS {
        page.push_str(&suite(root, directory)?);
    }
    page.push_str(AGENTS_TEXT);
    page.push_str(HEAD);
    for directory in AGENTS_TESTS {
        page.push_str(&suite(root, directory)?);
    }
    for (attempt, result, file, tests) in AGENTS {
        let tests: Vec<String> = tests.iter().map(|name| format!("`{name}`")).collect();
        let tests = tests.join(", ");
        page.push_str(&format!(
            "| {attempt} | {result} | [{tests}](../../{file}) |\n"
        ));
    }
    Ok(page)
}

/// Returns the rows of a suite: of each test, its name, and its doc comment, which contains the attempt and, after a
/// colon, its result.
fn suite(root: &Path, directory: &str) -> Result<String> {
    let entries = fs::read_dir(root.join(directory)).with_context(|| directory.to_owned())?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<io::Result<_>>()?;
    names.sort();
    let mut rows = String::new();
    for name in names {
        let file = format!("{directory}/{name}");
        let text = fs::read_to_string(root.join(&file)).with_context(|| file.clone())?;
        rows.push_str(&tests(&file, &text)?);
    }
    Ok(rows)
}

/// Returns the rows of one file.
fn tests(file: &str, text: &str) -> Result<String> {
    let mut rows = String::new();
    let mut comment = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(words) = line.strip_prefix("/// ") {
            comment.push(words);
        } else if ["#[tokio::test]", "#[test]"].contains(&line) {
            let name = lines.next().unwrap_or_default();
            let name = name.trim_start_matches("async ").trim_start_matches("fn ");
            let name = name.split('(').next().unwrap_or_default();
            let sentence = comment.join(" ");
            let (tried, outcome) = sentence
                .rsplit_once(": ")
                .with_context(|| format!("{file}: {name} has no result after a colon"))?;
            let outcome = outcome.trim_end_matches('.');
            rows.push_str(&format!(
                "| {tried} | {outcome} | [`{name}`](../../{file}) |\n"
            ));
            comment.clear();
        } else if !line.starts_with("#[") {
            comment.clear();
        }
    }
    Ok(rows)
}
