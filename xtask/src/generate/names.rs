//! The index: every name of the reference pages, in alphabetical order, with the pages that define it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use regex::Regex;

/// The page.
pub(super) const PAGE: &str = "docs/reference/names.md";
/// The places of names in a page.
#[derive(Clone, Copy)]
enum Form {
    /// The code at the beginning of the rows of tables.
    Rows,
    /// The code with a term in CamelCase, in the first two cells of the rows of tables.
    Terms,
    /// The links at the beginning of the rows of tables, each to its own page.
    Links,
    /// The headings that begin with this.
    Headings(&'static str),
}
/// The pages: their paths from `docs/reference`, what their names are, and the places of these names.
const PAGES: [(&str, &str, Form); 9] = [
    ("crds/README.md", "kind", Form::Links),
    ("conditions.md", "condition or reason", Form::Terms),
    ("audit.md", "audit record", Form::Rows),
    ("values.md", "chart value", Form::Rows),
    ("configuration.md", "configuration", Form::Rows),
    ("flags.md", "flag", Form::Rows),
    ("metrics.md", "metric", Form::Rows),
    ("ozctl.md", "command", Form::Headings("## ozctl ")),
    ("../guides/on-call.md", "alert", Form::Headings("### Oz")),
];
const INTRODUCTION: &str = "\
<!-- Generated from the reference pages by `cargo xtask generate`; do not edit. -->

# Index of names

Kinds, conditions and reasons, audit records, chart values, fields of the configuration, flags, metrics, commands and
alerts, in alphabetical order, with the page that defines each.
";

/// Returns the page. `generated` are the texts of generated pages; the others are read.
pub(super) fn page(root: &Path, generated: &BTreeMap<PathBuf, String>) -> Result<String> {
    let mut index: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (file, kind, form) in PAGES {
        let path = normalized(file);
        let text = match generated.get(&path) {
            Some(text) => text.clone(),
            None => fs::read_to_string(root.join(&path))
                .with_context(|| format!("failed to read {}", path.display()))?,
        };
        let names = names(&text, file, form)?;
        ensure!(!names.is_empty(), "{} has no names", path.display());
        for (name, link) in names {
            let key = (sorted_by(&name), name);
            index
                .entry(key)
                .or_default()
                .insert(format!("[{kind}]({link})"));
        }
    }
    let mut page = INTRODUCTION.to_owned();
    let mut letter = None;
    for ((key, name), links) in index {
        let first = key.chars().next().unwrap_or_default().to_ascii_uppercase();
        if letter != Some(first) {
            letter = Some(first);
            write!(page, "\n## {first}\n\n| name | defined as |\n|---|---|\n")?;
        }
        let links: Vec<String> = links.into_iter().collect();
        writeln!(page, "| `{name}` | {} |", links.join(", "))?;
    }
    Ok(page)
}

/// Returns the path of a page from the root of the repository.
fn normalized(file: &str) -> PathBuf {
    match file.strip_prefix("../") {
        Some(file) => Path::new("docs").join(file),
        None => Path::new("docs/reference").join(file),
    }
}

/// Returns the key by which a name is sorted: without the hyphens of flags, in lower case.
fn sorted_by(name: &str) -> String {
    name.trim_start_matches('-').to_lowercase()
}

/// Returns the names of a page, with the link to each.
fn names(text: &str, file: &str, form: Form) -> Result<Vec<(String, String)>> {
    let all = |pattern: &str, text: &str| -> Result<Vec<String>> {
        let found = Regex::new(pattern)?;
        Ok(found
            .captures_iter(text)
            .map(|found| found[1].to_owned())
            .collect())
    };
    let on_page = |names: Vec<String>| names.into_iter().map(|name| (name, file.to_owned()));
    Ok(match form {
        Form::Rows => on_page(all(r"(?m)^\| `([^`]+)` \|", text)?).collect(),
        Form::Terms => {
            let cells = all(r"(?m)^(\|[^|\n]*\|[^|\n]*)\|", text)?.join("\n");
            on_page(all(r"`([A-Z][A-Za-z]+)`", &cells)?).collect()
        }
        Form::Links => {
            let directory = file.rsplit_once('/').map_or("", |(directory, _)| directory);
            let link = Regex::new(r"(?m)^\| \[([^\]]+)\]\(([^)]+)\) \|")?;
            let links = link.captures_iter(text);
            links
                .map(|link| (link[1].to_owned(), format!("{directory}/{}", &link[2])))
                .collect()
        }
        Form::Headings(start) => {
            let level = start.split(' ').next().unwrap_or_default().len() + 1;
            let headings = text.lines().filter(|line| line.starts_with(start));
            headings
                .filter_map(|line| line.get(level..))
                .map(|name| {
                    let anchor = name.to_lowercase().replace(' ', "-");
                    (name.to_owned(), format!("{file}#{anchor}"))
                })
                .collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_rows_terms_links_and_headings() {
        let of = |name: &str, link: &str| (name.to_owned(), link.to_owned());
        for (text, form, expected) in [
            (
                "| value | default |\n|---|---|\n| `a.b` | `1` |\n| text | `c` |\n",
                Form::Rows,
                vec![of("a.b", "crds/page.md")],
            ),
            (
                "| `Ready` | `NotStamped`, `StampForged`: it | see `Elsewhere` |\n| | `lower` | |\n",
                Form::Terms,
                vec![
                    of("Ready", "crds/page.md"),
                    of("NotStamped", "crds/page.md"),
                    of("StampForged", "crds/page.md"),
                ],
            ),
            (
                "| [Workspace](workspace.md) | `v1` |\n",
                Form::Links,
                vec![of("Workspace", "crds/workspace.md")],
            ),
            (
                "## ozctl run list\n\n## Others\n",
                Form::Headings("## ozctl "),
                vec![of("ozctl run list", "crds/page.md#ozctl-run-list")],
            ),
        ] {
            assert_eq!(
                names(text, "crds/page.md", form).unwrap(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn index_is_sorted_without_hyphens_and_joins_pages() {
        let root = oz_testkit::repository();
        let page = page(&root, &BTreeMap::new()).unwrap();
        let row = |name: &str| {
            page.lines()
                .position(|line| line.starts_with(&format!("| `{name}` |")))
        };
        for name in ["AccessLock", "NotStamped", "oz_leader", "ozctl exec"] {
            assert!(row(name).is_some(), "{name}");
        }
        let value = page
            .lines()
            .find(|line| line.starts_with("| `audit.retention` |"));
        assert_eq!(
            value,
            Some(
                "| `audit.retention` | [chart value](values.md), [configuration](configuration.md) |"
            )
        );
        assert!(row("--namespace=NAME") < row("NotStamped"));
        assert!(page.contains("| `OzDrift` | [alert](../guides/on-call.md#ozdrift) |"));
    }
}
