//! Tests that the table of crates in CONTRIBUTING.md has every crate of the workspace and its dependencies.

#![allow(clippy::unwrap_used, reason = "a test should stop where it failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

type Crates = BTreeMap<String, BTreeSet<String>>;

/// Returns the crates of the workspace, each with its dependencies that no other dependency includes.
fn workspace(root: &Path) -> Crates {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root)
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let direct = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let normal = dependencies.filter(|one| one["kind"].is_null()).map(name);
        normal.filter(|one| ours.contains(one)).collect()
    };
    let direct: Crates = packages.iter().map(|it| (name(it), direct(it))).collect();
    let by_another = |one: &String, others: &BTreeSet<String>| {
        let mut others = others.iter().filter(|other| *other != one);
        others.any(|other| reaches(&direct, other, one))
    };
    let reduced = |depends_on: &BTreeSet<String>| {
        let needed = depends_on.iter().filter(|one| !by_another(one, depends_on));
        needed.cloned().collect()
    };
    direct
        .iter()
        .map(|(name, depends_on)| (name.clone(), reduced(depends_on)))
        .collect()
}

fn reaches(direct: &Crates, from: &str, to: &str) -> bool {
    let mut next = direct[from].iter();
    next.any(|one| one == to || reaches(direct, one, to))
}

/// Returns the rows of the table, as in `| oz-trail | oz-api | … |`.
fn table(text: &str) -> Crates {
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| crate |"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let mut cells = line.split('|').map(|cell| cell.trim().replace('`', ""));
        let (name, depends_on) = (cells.nth(1).unwrap(), cells.next().unwrap());
        let depends_on = depends_on.split(", ").filter(|one| !one.is_empty());
        (name, depends_on.map(ToOwned::to_owned).collect())
    };
    rows.map(row).collect()
}

#[test]
fn contributors_see_every_crate_and_what_it_depends_on() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let root = root.unwrap();
    let text = fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    assert_eq!(table(&text), workspace(root));
}
