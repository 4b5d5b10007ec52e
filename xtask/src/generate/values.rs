//! The reference page of the chart's values, from values.yaml: its comments, its defaults, and the descriptions of the
//! fields of the configuration.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::reference::cell;

/// The page.
pub(super) const PAGE: &str = "docs/reference/values.md";
/// The chart's values.
const VALUES: &str = "charts/oz/values.yaml";
/// Values that are one value for users, though YAML has names below them.
const WHOLE: [&str; 3] = ["resources", "aggregateTo", "labels"];
/// The meaning of names that several components have, and of those whose section says the rest.
const COMMON: [(&str, &str); 23] = [
    ("affinity", "Affinity of the pods."),
    ("aggregateTo", "Labels of the role."),
    ("annotations", "Annotations of the object."),
    ("create", "Create the object."),
    (
        "digest",
        "Digest of the image, instead of the tag: sha256:…",
    ),
    ("interval", "Interval of the scrapes."),
    ("kubernetesClusterDomain", "Accepted without effect."),
    ("labels", "Further labels of the object."),
    (
        "maxUnavailable",
        "Maximum number of pods that an eviction may remove at once.",
    ),
    ("metricRelabelings", "Relabelling of the metrics."),
    ("name", "Name of the object."),
    ("nodeSelector", "Labels of the nodes on which the pods run."),
    ("podAnnotations", "Annotations of the pods."),
    ("podLabels", "Labels of the pods."),
    ("port", "Port of the Service."),
    ("pullPolicy", "When the kubelet pulls the image."),
    ("resources", "Requests and limits of the container."),
    ("scrapeTimeout", "Timeout of the scrapes."),
    (
        "serviceAccountAnnotations",
        "Annotations of the service account.",
    ),
    ("tag", "Tag of the image."),
    ("tolerations", "Tolerations of the pods."),
    (
        "topologySpreadConstraints",
        "Constraints instead of the default, which spreads the pods over nodes and zones as far as possible.",
    ),
    ("type", "Type of the Service."),
];
const INTRODUCTION: &str = "\
<!-- Generated from charts/oz/values.yaml by `cargo xtask generate`; do not edit. -->

# Values of the chart

`helm install --set NAME=VALUE`, or `--values FILE`, sets these values of [charts/oz](../../charts/oz). A schema rejects
unknown names and invalid values. [Install](../guides/install.md#values) lists the frequently used ones. The fields of
the [configuration](configuration.md) are values at the same paths, also those that are not listed here, with the
defaults of that page.
";

/// A value, or a group of them.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    path: Vec<String>,
    /// The comment above it.
    comment: String,
    /// Whether other values are below it.
    is_group: bool,
}

/// Returns the page. `schema` is the schema of the values.
pub(super) fn page(root: &Path, schema: &Value) -> Result<String> {
    let text = fs::read_to_string(root.join(VALUES))
        .with_context(|| format!("failed to read {VALUES}"))?;
    let values: Value =
        serde_saphyr::from_str(&text).with_context(|| format!("failed to parse {VALUES}"))?;
    let mut page = INTRODUCTION.to_owned();
    let entries = entries(&text);
    let (sections, others): (Vec<_>, Vec<_>) = entries
        .iter()
        .partition(|entry| entry.path.len() > 1 || entry.is_group);
    page.push_str("\n## General\n\n");
    page.push_str(&table(&others, schema, &values)?);
    for section in sections.iter().filter(|entry| entry.path.len() == 1) {
        let name = section.path.first();
        let inner: Vec<&Entry> = sections
            .iter()
            .copied()
            .filter(|entry| entry.path.len() > 1 && entry.path.first() == name)
            .collect();
        write!(page, "\n## {}\n\n", section.path.concat())?;
        if !section.comment.is_empty() {
            write!(page, "{}\n\n", section.comment)?;
        }
        page.push_str(&table(&inner, schema, &values)?);
    }
    Ok(page)
}

/// Returns the table of these values.
fn table(entries: &[&Entry], schema: &Value, values: &Value) -> Result<String> {
    let mut table = String::from("| value | default | meaning |\n|---|---|---|\n");
    for entry in entries {
        let path = entry.path.join(".");
        let meaning = meaning(entry, schema);
        let default = if entry.is_group {
            String::new()
        } else {
            let value = entry
                .path
                .iter()
                .fold(values, |value, name| &value[name.as_str()]);
            default(value)
        };
        match meaning {
            Some(meaning) => writeln!(table, "| `{path}` | {default} | {} |", cell(&meaning))?,
            // What is below it has meanings.
            None if entry.is_group => {}
            None => bail!("{VALUES}: {path} has no comment"),
        }
    }
    Ok(table)
}

/// Returns the meaning of a value: its comment, its description in the schema, or that of its name.
fn meaning(entry: &Entry, schema: &Value) -> Option<String> {
    if !entry.comment.is_empty() {
        return Some(entry.comment.clone());
    }
    let described = entry
        .path
        .iter()
        .fold(schema, |schema, name| &schema["properties"][name.as_str()]);
    let described = described["description"].as_str().map(ToOwned::to_owned);
    let name = entry.path.last()?;
    let common = COMMON.iter().find(|(common, _)| common == name);
    described.or_else(|| {
        common
            .filter(|_| !entry.is_group)
            .map(|(_, meaning)| (*meaning).to_owned())
    })
}

/// Returns a default as the page shows it.
fn default(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::String(text) => format!("`{text}`"),
        value => format!("`{value}`").replace('|', r"\|"),
    }
}

/// Returns the values in the order of the file.
fn entries(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    // The names above the current line, with their indentation.
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indentation = line.len() - trimmed.len();
        if let Some(words) = trimmed.strip_prefix('#') {
            let words = words.trim();
            // A new comment begins.
            if let Some(words) = words.strip_prefix("-- ") {
                comment.clear();
                comment.push(words);
            } else {
                comment.push(words);
            }
            continue;
        }
        let Some((name, rest)) = trimmed
            .split_once(':')
            .filter(|_| !trimmed.starts_with('-'))
        else {
            comment.clear();
            continue;
        };
        above.retain(|(other, _)| *other < indentation);
        let is_within = above.iter().any(|(_, name)| WHOLE.contains(&name.as_str()));
        above.push((indentation, name.trim_matches('"').to_owned()));
        let path: Vec<String> = above.iter().map(|(_, name)| name.clone()).collect();
        if !is_within {
            entries.push(Entry {
                is_group: rest.trim().is_empty() && !WHOLE.contains(&name),
                path,
                comment: comment.join(" "),
            });
        }
        comment.clear();
    }
    entries
}

#[cfg(test)]
/// Adds the paths of all values below a value.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    let name = path.rsplit('.').next().unwrap_or_default();
    match value.as_object() {
        Some(inner) if !inner.is_empty() && !WHOLE.contains(&name) => {
            for (name, inner) in inner {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                leaves(inner, &path, found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_their_comments_and_groups_contain_values() {
        let text = "# About the file.\n\n# -- First.\na: 1\n# A group.\n# -- Second\n# goes on.\nb:\n  \
                    resources:\n    limits: {memory: 1}\n  c: \"\"\n";
        let found: Vec<(String, String, bool)> = entries(text)
            .into_iter()
            .map(|entry| (entry.path.join("."), entry.comment, entry.is_group))
            .collect();
        let of =
            |path: &str, comment: &str, is_group| (path.to_owned(), comment.to_owned(), is_group);
        assert_eq!(
            found,
            [
                of("a", "First.", false),
                of("b", "Second goes on.", true),
                of("b.resources", "", false),
                of("b.c", "", false),
            ]
        );
    }

    #[test]
    fn page_has_every_value_of_the_chart() {
        let root = oz_testkit::repository();
        let schema = super::super::configuration::values().unwrap();
        let page = page(&root, &schema).unwrap();
        let text = fs::read_to_string(root.join(VALUES)).unwrap();
        let mut all = Vec::new();
        leaves(&serde_saphyr::from_str(&text).unwrap(), "", &mut all);
        assert!(all.len() > 100, "{}", all.len());
        for path in all {
            assert!(page.contains(&format!("| `{path}` |")), "{path}");
        }
    }

    #[test]
    fn value_without_meaning_is_an_error() {
        let entry = Entry {
            path: vec!["other".to_owned()],
            comment: String::new(),
            is_group: false,
        };
        assert_eq!(meaning(&entry, &json!({})), None);
        assert!(table(&[&entry], &json!({}), &json!({})).is_err());
    }
}
