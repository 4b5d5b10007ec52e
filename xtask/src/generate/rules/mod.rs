//! The page with the rules between a request and its grant, and the test of each rule for each kind.

mod before;
mod cell;
mod granted;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use oz_core::access::rules::{Description, RULES};
use oz_core::kinds::{Entry, Role};

use cell::{COLUMNS, Cell, KINDS};

/// The page.
pub(super) const PAGE: &str = "docs/reference/rules.md";

const INTRODUCTION: &str = "\
<!-- Generated from crates/core/src/access/rules/mod.rs by `cargo xtask generate`; do not edit. -->

# Rules before a grant

The operator applies these rules to every access request, transient binding and harness run, in this \
order, and again after each change until access is granted. The first rule that does not hold decides: \
the object waits, is denied, or ends. A rule that an object has no field for always holds. The choice of \
the pod, the role or the workspace follows after the last rule.

| | rule | requirement |
|---|---|---|
";

const BEFORE: &str = "
## Tests of the rules, by kind

Each cell has the test that breaks the rule for an object of the kind, or the reason why the kind has no such rule. A \
Workspace is storage for runs and grants no access. [How to add a rule](../contributing/add-a-rule.md) describes the \
files of a new row.

";

const GRANTED: &str = "
## Notifications, and rules while access lasts

| rule | effect |
|---|---|
";

/// Returns the page.
///
/// # Errors
/// The rules and kinds without a cell, and the tests that do not exist.
pub(super) fn page(root: &Path) -> Result<String> {
    let mut faults = missing_rules(before::ROWS, RULES);
    faults.extend(missing_kinds(&COLUMNS, &oz_core::kinds::all()));
    faults.extend(missing_tests(root, cells())?);
    ensure!(faults.is_empty(), "{PAGE}: {}", faults.join("; "));
    let mut page = INTRODUCTION.to_owned();
    for (place, rule) in RULES.iter().enumerate() {
        let (place, name, requires) = (place + 1, rule.name, rule.requires);
        page.push_str(&format!("| {place} | {name} | {requires} |\n"));
    }
    page.push_str(BEFORE);
    page.push_str(&head());
    for (rule, cells) in before::ROWS {
        page.push_str(&row(rule, cells));
    }
    page.push_str(GRANTED);
    for (rule, _) in granted::ROWS {
        page.push_str(&format!("| {} | {} |\n", rule.name, rule.requires));
    }
    page.push('\n');
    page.push_str(&head());
    for (rule, cells) in granted::ROWS {
        page.push_str(&row(rule.name, cells));
    }
    Ok(page)
}

/// Returns the cells of both tables.
fn cells() -> impl Iterator<Item = Cell> {
    let before = before::ROWS.iter().flat_map(|(_, cells)| *cells);
    let granted = granted::ROWS.iter().flat_map(|(_, cells)| *cells);
    before.chain(granted)
}

/// Returns the head of a table of rules and kinds.
fn head() -> String {
    let titles = COLUMNS.map(|(title, _)| title).join(" | ");
    format!("| rule | {titles} |\n|---|{}\n", "---|".repeat(KINDS))
}

fn row(rule: &str, cells: &[Cell; KINDS]) -> String {
    let cells = cells.map(|cell| match cell {
        Cell::Tested(file, name) => format!("[`{name}`](../../{file})"),
        Cell::Absent(reason) => reason.to_owned(),
    });
    format!("| {rule} | {} |\n", cells.join(" | "))
}

/// Returns the rules without a row in their place, and the rows of no rule.
fn missing_rules(rows: &[(&str, [Cell; KINDS])], rules: &[Description]) -> Vec<String> {
    let row_names = rows.iter().map(|(rule, _)| Some(*rule));
    let row_names = row_names.chain(std::iter::repeat(None));
    let rule_names = rules.iter().map(|rule| Some(rule.name));
    let rule_names = rule_names.chain(std::iter::repeat(None));
    let pairs = rule_names.zip(row_names).take(rules.len().max(rows.len()));
    pairs
        .filter(|(rule, row)| rule != row)
        .map(|(rule, row)| {
            let [rule, row] = [rule, row].map(|name| name.unwrap_or("no rule"));
            format!("the row of {rule} is that of {row}")
        })
        .collect()
}

/// Returns the kinds that are granted and have no column, or several, and the columns of no such kind.
fn missing_kinds(columns: &[(&str, &[&str])], kinds: &[Entry]) -> Vec<String> {
    let named = || columns.iter().flat_map(|(_, names)| names.iter().copied());
    let granted = |name: &str| {
        let mut kinds = kinds.iter();
        kinds.any(|kind| kind.name == name && is_granted(kind.role))
    };
    let kinds = kinds.iter().filter(|kind| is_granted(kind.role));
    let without = kinds.filter_map(|kind| {
        let count = named().filter(|name| *name == kind.name).count();
        (count != 1).then(|| format!("kind {} has {count} columns", kind.name))
    });
    let unknown = named().filter(|name| !granted(name));
    let unknown = unknown.map(|name| format!("column {name} is of no kind that is granted"));
    without.chain(unknown).collect()
}

/// Checks whether objects of this role are granted by the rules.
const fn is_granted(role: Role) -> bool {
    match role {
        Role::Request | Role::Binding | Role::Run => true,
        Role::Template
        | Role::Approval
        | Role::Lock
        | Role::Policy
        | Role::Review
        | Role::Record
        | Role::Workspace
        | Role::RunTemplate
        | Role::RunPolicy
        | Role::Composite => false,
    }
}

/// Returns the named tests that do not exist.
fn missing_tests(root: &Path, cells: impl Iterator<Item = Cell>) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for cell in cells {
        let Cell::Tested(file, name) = cell else {
            continue;
        };
        let text = fs::read_to_string(root.join(file));
        let text = text.with_context(|| format!("failed to read {file} with test {name}"))?;
        if !has_test(&text, name) {
            missing.push(format!("{file} has no test {name}"));
        }
    }
    Ok(missing)
}

/// Checks whether a source file defines a test with this name: a function under an attribute such as `#[tokio::test]`.
fn has_test(text: &str, name: &str) -> bool {
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if let Some(attribute) = line.strip_prefix("#[") {
            let path = attribute.split(['(', ']']).next().unwrap_or_default();
            is_test |= path == "test" || path.ends_with("::test");
            continue;
        }
        let function = line.strip_prefix("async ").unwrap_or(line);
        if let Some(signature) = function.strip_prefix("fn ") {
            let is_named = signature.split('(').next() == Some(name);
            if is_test && is_named {
                return true;
            }
            is_test = false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_row_and_every_granted_kind_a_column() {
        assert_eq!(missing_rules(before::ROWS, RULES), [""; 0]);
        assert_eq!(missing_kinds(&COLUMNS, &oz_core::kinds::all()), [""; 0]);
        let fewer = missing_rules(&before::ROWS[1..], RULES);
        assert_eq!(fewer[0], "the row of Spec is that of Stamp");
        assert_eq!(
            fewer.last().unwrap(),
            "the row of Reviews is that of no rule"
        );
        let kinds = oz_core::kinds::all();
        assert_eq!(
            missing_kinds(&COLUMNS[..KINDS - 1], &kinds),
            ["kind harnessrun has 0 columns"]
        );
        let locks: (&str, &[&str]) = ("locks", &["accesslock"]);
        let twice = [COLUMNS[0], COLUMNS[0], locks];
        let faults = missing_kinds(&[&COLUMNS[1..], &twice].concat(), &kinds);
        assert_eq!(
            faults,
            [
                "kind execaccessrequest has 2 columns",
                "column accesslock is of no kind that is granted",
            ]
        );
    }

    #[test]
    fn every_test_in_the_tables_exists() {
        let root = oz_testkit::repository();
        assert_eq!(missing_tests(&root, cells()).unwrap(), [""; 0]);
        let unknown = cell::tested("xtask/src/generate/rules/mod.rs", "unknown");
        let missing = missing_tests(&root, [unknown].into_iter()).unwrap();
        assert_eq!(
            missing,
            ["xtask/src/generate/rules/mod.rs has no test unknown"]
        );
        let unreadable = cell::tested("xtask/src/generate/rules/unknown.rs", "unknown");
        assert!(missing_tests(&root, [unreadable].into_iter()).is_err());
    }

    #[test]
    fn only_functions_with_the_attribute_are_tests() {
        let text = "#[test]\nfn one() {}\n\nfn two() {}\n\n#[tokio::test(flavor = \"multi_thread\")]\n\
                    #[ignore]\nasync fn three() {}\n\nproptest! {\n    #[test]\n    fn four(a in 0..1) {}\n}\n\
                    // fn five() {}\n#[cfg(test)]\nfn six() {}\n";
        let names = ["one", "two", "three", "four", "five", "six"];
        let found = names.map(|name| has_test(text, name));
        assert_eq!(found, [true, false, true, true, false, false]);
    }
}
