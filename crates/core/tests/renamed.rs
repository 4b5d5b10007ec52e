//! Tests that no old name of the API is left in the repository: docs/reference/renamed.md has the old names and the
//! new ones.

#![allow(clippy::unwrap_used, reason = "a test should stop where it failed")]

use std::fs;
use std::path::{Path, PathBuf};

/// The page with the names, which is the only document with the old ones.
const PAGE: &str = "docs/reference/renamed.md";
/// Files that read records with a former action, and their test data.
const RECORDS: [&str; 3] = [
    "crates/trail/src/action.rs",
    "crates/trail/src/tests/data/former_names.jsonl",
    "crates/trail/src/tests/former_names.rs",
];
/// Files with which the chart refuses an old value, and names the new one.
const REFUSED_VALUES: [&str; 4] = [
    "charts/oz/templates/_refuse.tpl",
    "charts/oz/values.schema.json",
    "e2e/tests/chart/earlier/values.yaml",
    "xtask/src/generate/configuration/values.base.json",
];
/// Hidden directories that belong to the repository.
const HIDDEN: [&str; 3] = [".ci", ".cargo", ".github"];
/// Directories with built or downloaded files.
const SKIPPED: [&str; 3] = ["target", "node_modules", "dist"];

/// Returns the old names: the code in the first column of each table.
fn old_names(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split('|').next());
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect()
}

/// Adds the files below a directory to `found`.
fn find(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let kind = entry.file_type().unwrap();
        let is_hidden = name.starts_with('.') && !HIDDEN.contains(&name.as_str());
        if kind.is_dir() && !is_hidden && !SKIPPED.contains(&name.as_str()) {
            find(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

/// Checks whether `text` contains `name`, not as a part of a longer name.
fn contains(text: &str, name: &str) -> bool {
    let joins = |next: char| next.is_ascii_alphanumeric() || next == '_' || next == '-';
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        !before.ends_with(joins) && !after.starts_with(joins)
    })
}

#[test]
fn renamed_page_lists_old_names() {
    let page = "# Names\n\n| old | new |\n|---|---|\n| `a`, `b: C` | `d` |\n| `e-f` | none |\n";
    assert_eq!(old_names(page), ["a", "b: C", "e-f"]);
    assert!(contains("see `e-f`.", "e-f"));
    assert!(!contains("see e-f-g, the_e-f", "e-f"));
}

#[test]
fn old_name_is_nowhere_but_on_the_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let root = root.unwrap();
    let page = fs::read_to_string(root.join(PAGE)).unwrap();
    let names = old_names(&page);
    assert!(names.len() > 150, "the page has {} old names", names.len());
    let mut files = Vec::new();
    find(root, &mut files);
    assert!(files.len() > 1_000, "it looks in the wrong place");
    let mut left = Vec::new();
    for file in files {
        let path = file.strip_prefix(root).unwrap().display().to_string();
        // A file that is not text has no names.
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        let is_exempt = |files: &[&str]| files.contains(&path.as_str());
        if path == PAGE || is_exempt(&RECORDS) || is_exempt(&REFUSED_VALUES) {
            continue;
        }
        let found = names.iter().filter(|name| contains(&text, name));
        left.extend(found.map(|name| format!("{path}: {name}")));
    }
    assert_eq!(left, Vec::<String>::new(), "{PAGE} has the new names");
}
