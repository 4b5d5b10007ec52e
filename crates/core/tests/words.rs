//! Tests that vague names do not return: the name of a timeout contains the operation that it limits, the
//! name of a type or a file describes its content (docs/glossary.md). And that modules have one form.

#![allow(clippy::unwrap_used, reason = "a test should stop where it failed")]

mod sources;

use std::fs;
use std::path::{Path, PathBuf};

/// A word that no constant may contain.
const CONSTANT: &str = "PATIENCE";
/// Names that no type may have.
const TYPES: [&str; 8] = [
    "Came", "Told", "Hands", "Lines", "Place", "Places", "Near", "Sighting",
];
/// Names that no file and no module may have.
const FILES: [&str; 7] = [
    "left", "leaving", "tell", "turns", "seen", "made_now", "trouble",
];

/// Checks whether a line defines or uses a constant with [`CONSTANT`] in its name, or defines one of
/// [`TYPES`].
fn is_vague(line: &str) -> bool {
    let mut words = line.split(|next: char| !next.is_alphanumeric() && next != '_');
    let mut before = "";
    words.any(|word| {
        let defines = ["struct", "enum", "trait", "type"].contains(&before);
        before = word;
        word.contains(CONSTANT) || (defines && TYPES.contains(&word))
    })
}

/// Returns the root of the repository and every source file in it.
fn repository() -> (&'static Path, Vec<PathBuf>) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let repository = repository.unwrap();
    let mut files = Vec::new();
    for one in ["crates", "e2e", "xtask", "workshop"] {
        sources::find(&repository.join(one), &|name| name == "target", &mut files);
    }
    assert!(files.len() > 500, "it looks in the wrong place");
    (repository, files)
}

#[test]
fn no_name_is_one_of_those_that_say_nothing() {
    let (repository, files) = repository();
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(repository).unwrap().display().to_string();
        if name == "crates/core/tests/words.rs" {
            continue;
        }
        let parts = Path::new(&name).iter().map(|part| part.to_str().unwrap());
        let mut parts = parts.map(|part| part.trim_end_matches(".rs"));
        if parts.any(|part| FILES.contains(&part)) {
            found.push(name.clone());
        }
        let text = fs::read_to_string(&file).unwrap();
        let lines = (1..).zip(text.lines());
        let lines = lines.filter(|(_, line)| is_vague(line));
        found.extend(lines.map(|(number, line)| format!("{name}:{number}: {line}")));
    }
    assert_eq!(
        found,
        Vec::<String>::new(),
        "docs/glossary.md has the words"
    );
}

#[test]
fn a_module_with_files_is_a_folder_with_a_mod_rs() {
    let (_, files) = repository();
    let mut beside = files.clone();
    beside.retain(|file| {
        files
            .iter()
            .any(|other| other.parent() == Some(&file.with_extension("")))
    });
    assert_eq!(beside, Vec::<PathBuf>::new());
}
