//! The search index of the site: whether it has the names for which users search.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use regex::Regex;
use serde_json::Value;

use super::{DOCS, read};

/// Reasons that users see in an error.
const REASONS: [&str; 2] = ["NoGrant", "NotStamped"];
/// Pages with a table of names, and the minimum number of names of each.
const TABLES: [(&str, usize); 3] = [
    ("reference/values.md", 100),
    ("reference/flags.md", 10),
    ("reference/metrics.md", 50),
];
/// The page with the commands of ozctl.
const COMMANDS: &str = "reference/ozctl.md";

/// Checks whether the search index has every name, and returns their number.
pub(super) fn check(root: &Path, site: &Path) -> Result<usize> {
    let indexed = indexed(&read(&file(site)?)?)?;
    let docs = root.join(DOCS);
    let mut names: BTreeSet<String> = REASONS.map(ToOwned::to_owned).into();
    for (page, least) in TABLES {
        let found = first_cells(&read(&docs.join(page))?)?;
        ensure!(
            found.len() >= least,
            "docs/{page} has {} names",
            found.len()
        );
        names.extend(found);
    }
    let flag = Regex::new(r"--[a-z][a-z-]+")?;
    let commands = read(&docs.join(COMMANDS))?;
    names.extend(
        flag.find_iter(&commands)
            .map(|flag| flag.as_str().to_owned()),
    );
    let missing: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !indexed.contains(name))
        .collect();
    if !missing.is_empty() {
        bail!("the search index lacks {}", missing.join(", "));
    }
    Ok(names.len())
}

/// Returns the file of the search index.
fn file(site: &Path) -> Result<std::path::PathBuf> {
    let entries =
        fs::read_dir(site).with_context(|| format!("failed to list {}", site.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("searchindex") && name.ends_with(".js") {
            return Ok(path);
        }
    }
    bail!("{} has no search index", site.display())
}

/// Returns the indexed texts. The index is a literal of JavaScript with JSON in it.
fn indexed(script: &str) -> Result<String> {
    let (from, to) = (script.find('\''), script.rfind('\''));
    let literal = from.zip(to).and_then(|(from, to)| script.get(from + 1..to));
    let literal = literal.context("the search index has no literal")?;
    let json = Regex::new(r"\\(['\\])")?.replace_all(literal, "$1");
    let index: Value = serde_json::from_str(&json).context("failed to parse the search index")?;
    let documents = index["index"]["documentStore"]["docs"].as_object();
    let documents = documents.context("the search index has no documents")?;
    let texts = documents.values().flat_map(|document| {
        ["title", "body"].map(|part| document[part].as_str().unwrap_or_default())
    });
    Ok(texts.collect::<Vec<_>>().join("\n"))
}

/// Returns the code with which the rows of tables begin.
fn first_cells(page: &str) -> Result<Vec<String>> {
    let cell = Regex::new(r"(?m)^\| `([^`]+)` \|")?;
    let cells = cell
        .captures_iter(page)
        .map(|cell| cell[1].replace(r"\|", "|"));
    Ok(cells.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_read_with_its_escapes() {
        let script = r#"window.search = Object.assign(window.search, JSON.parse('{"index":{"documentStore":{"docs":{"0":{"title":"A","body":"it\'s \\"b\\" NoGrant"}}}}}'));"#;
        assert_eq!(indexed(script).unwrap(), "A\nit's \"b\" NoGrant");
        assert!(indexed("").is_err());
    }

    #[test]
    fn names_are_the_first_cells() {
        let page =
            "| value | default |\n|---|---|\n| `a.b` | `1` |\n| `--c=X\\|Y` | |\n| text | `d` |\n";
        assert_eq!(first_cells(page).unwrap(), ["a.b", "--c=X|Y"]);
    }
}
