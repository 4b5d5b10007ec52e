//! The README of the chart, and the reference page of its values. Their tables have the values with a comment that begins with `# --` in values.yaml, which is the
//! description of the value below it.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::address;

/// The introduction, with a `{}` for each of [`PAGES`].
const INTRODUCTION: &str = r"<!-- Generated from values.yaml by `cargo xtask generate`; do not edit. -->

# oz

oz grants an engineer access to one Kubernetes pod for a limited time, records every use, and revokes the access at the
agreed second.

```console
$ helm install oz charts/oz --namespace oz-system --create-namespace
$ helm test oz --namespace oz-system
```

- [Install]({}): the image, the first grant, the frequently used values.
- [Upgrade]({}), also from the original Oz.
- [Uninstall]({}): a hook of the chart ends all access first.
- [Argo CD and Flux]({}).
- [Configuration]({}): the fields that the chart writes from the values.

The chart requires Kubernetes 1.30 or newer, and Helm 3.17 or newer. A schema refuses unknown values.

## Values
";
/// The introduction of the reference page.
const REFERENCE: &str = "\
<!-- Generated from charts/oz/values.yaml by `cargo xtask generate`; do not edit. -->

# Values of the chart

`helm install --set NAME=VALUE`, or `--values FILE`, sets these values of [charts/oz](../../charts/oz). A schema refuses
unknown names and invalid values. [Install](../guides/install.md#values) lists the frequently used ones. The fields of
the [configuration](configuration.md) are values at the same paths, also those that are not listed here, with the
defaults of that page.
";
/// The pages that the introduction links.
const PAGES: [&str; 5] = [
    "docs/guides/install.md",
    "docs/guides/upgrade.md",
    "docs/guides/uninstall.md",
    "docs/guides/gitops.md",
    "docs/reference/configuration.md",
];
/// The beginning of a comment that describes a value.
const MARK: &str = "-- ";

/// A value with its description.
#[derive(Debug, PartialEq, Eq)]
struct Described {
    path: Vec<String>,
    description: String,
}

/// Returns the README. `text` is values.yaml, and `values` its content.
pub(super) fn text(text: &str, values: &Value) -> Result<String> {
    Ok(introduction() + &tables(text, values, "###")?)
}

/// Returns the reference page. `text` is values.yaml, and `values` its content.
pub(super) fn reference(text: &str, values: &Value) -> Result<String> {
    Ok(REFERENCE.to_owned() + &tables(text, values, "##")?)
}

/// Returns the tables of the values, with headings of this level.
fn tables(text: &str, values: &Value, level: &str) -> Result<String> {
    let all = described(text)?;
    // Values that are in no section come first.
    let (general, others): (Vec<_>, Vec<_>) = all.iter().partition(|value| value.path.len() == 1);
    let mut tables = table(level, "General", &general, values)?;
    for section in others.chunk_by(|one, other| one.path[0] == other.path[0]) {
        tables += &table(level, &section[0].path[0], section, values)?;
    }
    Ok(tables)
}

fn introduction() -> String {
    let mut parts = INTRODUCTION.split("{}");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (page, part) in PAGES.iter().zip(parts) {
        text += &address(page);
        text += part;
    }
    text
}

fn table(level: &str, title: &str, section: &[&Described], values: &Value) -> Result<String> {
    let mut text = format!("\n{level} {title}\n\n| value | default | meaning |\n|---|---|---|\n");
    for Described { path, description } in section {
        let name = path.join(".");
        let value = path
            .iter()
            .try_fold(values, |value, key| value.get(key))
            .with_context(|| format!("{name} has no default"))?;
        let (default, meaning) = (cell(&value.to_string()), cell(description));
        writeln!(text, "| `{name}` | `{default}` | {meaning} |")?;
    }
    Ok(text)
}

/// Returns a text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', r"\|")
}

/// Returns the values with a description, in their order. Every other value is in one of them.
fn described(text: &str) -> Result<Vec<Described>> {
    let mut all = Vec::new();
    // The keys above the current line, with their indentation.
    let mut keys: Vec<(usize, String)> = Vec::new();
    let mut description: Option<String> = None;
    // The indentation of the described value that the current line can be in.
    let mut within: Option<usize> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        let is_within = within.is_some_and(|outer| indent > outer);
        if content.is_empty() {
            description = None;
        } else if let Some(comment) = content.strip_prefix('#') {
            let comment = comment.trim();
            if let Some(first) = comment.strip_prefix(MARK) {
                ensure!(!is_within, "line {number}: the value above describes it");
                description = Some(first.to_owned());
            } else if let Some(description) = &mut description {
                description.push(' ');
                description.push_str(comment);
            }
        } else if !is_within {
            within = None;
            let (key, value) = content
                .split_once(':')
                .with_context(|| format!("line {number}: no key"))?;
            keys.retain(|(outer, _)| *outer < indent);
            keys.push((indent, key.to_owned()));
            if let Some(description) = description.take() {
                let path = keys.iter().map(|(_, key)| key.clone()).collect();
                all.push(Described { path, description });
                within = Some(indent);
            } else {
                ensure!(
                    value.trim().is_empty(),
                    "line {number}: {key} has no description; write a comment with `# --` above it"
                );
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test should stop where it failed")]

    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_described_by_comments_above_them() {
        let text = "# Text.\n\n# -- A name,\n# or none.\nname: \"\"\n# A section.\nouter:\n  # -- A map.\n  map:\n    \
            # Prose.\n    a: {b: c}\n    d: 1\n  inner:\n    # -- A | b.\n    list: [x]\n";
        let described = described(text).unwrap();
        let described: Vec<(String, &str)> = described
            .iter()
            .map(|value| (value.path.join("."), &*value.description))
            .collect();
        let expected = [
            ("name", "A name, or none."),
            ("outer.map", "A map."),
            ("outer.inner.list", "A | b."),
        ];
        let expected = expected.map(|(path, text)| (path.to_owned(), text));
        assert_eq!(described, expected);

        let values = json!({"name": "", "outer": {"map": {"d": 1}, "inner": {"list": ["x"]}}});
        let page = super::text(text, &values).unwrap();
        for row in [
            "### General\n\n| value | default | meaning |\n|---|---|---|\n| `name` | `\"\"` | A name, or none. |\n",
            "\n### outer\n",
            "| `outer.map` | `{\"d\":1}` | A map. |\n",
            r#"| `outer.inner.list` | `["x"]` | A \| b. |"#,
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
        let reference = reference(text, &values).unwrap();
        assert!(reference.contains("\n## outer\n"), "{reference}");
    }

    #[test]
    fn value_without_description_is_refused() {
        for text in [
            "name: a\n",
            "# Prose.\nname: a\n",
            "# -- Described.\n\nname: a\n",
            "outer:\n  # -- Described.\n  a: b\n  c: d\n",
            "# -- Described.\nouter:\n  # -- As well.\n  a: b\n",
        ] {
            assert!(described(text).is_err(), "{text}");
        }
    }

    #[test]
    fn introduction_links_every_page() {
        let text = introduction();
        assert!(!text.contains("{}"), "{text}");
        for page in PAGES {
            assert!(text.contains(&format!("({})", address(page))), "{text}");
        }
    }
}
