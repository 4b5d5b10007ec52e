//! Tests that one function compares an instant with an expiry: `oz_api::instant::has_come`. A comparison
//! elsewhere would be a second decision about the end of access.

#![allow(clippy::unwrap_used, reason = "a test should stop where it failed")]

mod sources;

use std::fs;
use std::path::Path;

/// The permitted comparisons: the one, and those that do not concern access.
const KNOWN: [(&str, &str); 7] = [
    ("api/src/instant.rs", "now >= instant"),
    // Two expiries, the requested and the existing one.
    (
        "client/src/access.rs",
        "(wanted > until).then(|| Shortened {",
    ),
    // The requested terms, before there is any grant.
    (
        "core/src/transient/terms.rs",
        "(Some(from), Closes::At(until)) if until <= from => {",
    ),
    // The time of the retry after a failed pass, by the clock of the process.
    ("engine/src/run/queue/mod.rs", "&& *at <= instant"),
    (
        "operator/src/retention.rs",
        "if due > now && shortened.is_none_or(|before| time >= before) {",
    ),
    // The same, of a continued request.
    ("ozctl/src/verbs/extend.rs", "&& new < until"),
    ("trail/src/flood.rs", "let over = counting.ends() <= now;"),
];

/// Checks whether a line compares the present instant, or an expiry, with another value.
fn compares(line: &str) -> bool {
    const INSTANTS: [&str; 6] = ["now", "now()", "until", "instant", "end", "expires_at"];
    let is_instant = |word: Option<&str>| word.is_some_and(|word| INSTANTS.contains(&word));
    let compared = |operator: &str| {
        let sides = line.match_indices(operator);
        let mut sides = sides.map(|(at, _)| (&line[..at], &line[at + operator.len()..]));
        sides.any(|(left, right)| {
            is_instant(left.rsplit([' ', '.', '(', '*', '&', '|', '!']).next())
                || is_instant(right.split([' ', ',', ';', ')', '.']).next())
        })
    };
    [" >= ", " <= ", " < ", " > "].into_iter().any(compared)
}

#[test]
fn expiry_is_compared_in_known_lines_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for one in [
        "api",
        "client",
        "compliance",
        "composites",
        "core",
        "engine",
        "gating",
        "operator",
        "ozctl",
        "runs",
        "trail",
        "webhook",
    ] {
        let skips = |name: &str| ["tests", "testing", "tests.rs"].contains(&name);
        sources::find(&crates.join(one).join("src"), &skips, &mut files);
    }
    files.sort();
    let mut found = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let name = file.strip_prefix(crates).unwrap().to_str().unwrap();
        let lines = code.lines().map(str::trim);
        let lines = lines.filter(|line| !line.starts_with("//") && compares(line));
        found.extend(lines.map(|line| (name.to_owned(), line.to_owned())));
    }
    let known = KNOWN.map(|(file, line)| (file.to_owned(), line.to_owned()));
    assert_eq!(found, known);
}
