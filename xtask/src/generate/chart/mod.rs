//! The metadata of the chart, with the annotations of Artifact Hub, and its README: from the version of the workspace,
//! the changelog, the definitions of the kinds, and the comments of values.yaml; and the reference page of the values.

mod readme;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context as _, Result, ensure};
use oz_api::kind::CustomResourceDefinition;
use regex::Regex;
use serde::Serialize;
use serde_json::Value;

/// The metadata of the chart. The part between the marks is generated.
const CHART: &str = "charts/oz/Chart.yaml";
const BEGIN: &str = "# Generated from Cargo.toml, CHANGELOG.md, values.yaml and the definitions of the kinds by `cargo xtask generate`.\n";
const END: &str = "# End of the generated part.\n";
/// The page about the chart.
const README: &str = "charts/oz/README.md";
/// The reference page of the values.
const REFERENCE: &str = "docs/reference/values.md";
/// The chart's values.
const VALUES: &str = "charts/oz/values.yaml";
const CHANGELOG: &str = "CHANGELOG.md";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The address of the repository; empty if the workspace does not state it.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// A link in Markdown.
static LINK: LazyLock<Regex> = LazyLock::new(|| {
    #[allow(clippy::expect_used, reason = "a test below uses the pattern")]
    Regex::new(r"\[([^\]]*)\]\([^)]*\)").expect("a valid pattern")
});

/// A definition, as Artifact Hub shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Definition<'a> {
    kind: &'a str,
    version: &'a str,
    name: String,
    display_name: &'a str,
    description: String,
}

/// An image that the chart runs, as Artifact Hub shows it.
#[derive(Serialize)]
struct Image {
    name: &'static str,
    image: String,
}

/// Returns the generated files: their paths from the root of the repository, and their texts.
pub(super) fn files(
    root: &Path,
    definitions: &[(PathBuf, CustomResourceDefinition)],
) -> Result<BTreeMap<PathBuf, String>> {
    let read = |file: &str| {
        std::fs::read_to_string(root.join(file)).with_context(|| format!("failed to read {file}"))
    };
    let text = read(VALUES)?;
    let values: Value =
        serde_saphyr::from_str(&text).with_context(|| format!("failed to parse {VALUES}"))?;
    let crds = definitions.iter().map(|(_, crd)| definition(crd));
    let crds: Vec<Definition> = crds.collect::<Result<_>>()?;
    let changes = changes(&read(CHANGELOG)?, VERSION)
        .with_context(|| format!("failed to use {CHANGELOG}"))?;
    let metadata = metadata(&crds, &images(&values)?, &changes)?;
    let chart = filled(&read(CHART)?, &metadata).with_context(|| format!("no marks in {CHART}"))?;
    let unusable = || format!("failed to use {VALUES}");
    let readme = readme::text(&text, &values).with_context(unusable)?;
    let reference = readme::reference(&text, &values).with_context(unusable)?;
    Ok(BTreeMap::from([
        (PathBuf::from(CHART), chart),
        (PathBuf::from(README), readme),
        (PathBuf::from(REFERENCE), reference),
    ]))
}

/// Returns the address of a file of the repository for a page of the chart.
fn address(file: &str) -> String {
    match REPOSITORY {
        "" => format!("../../{file}"),
        repository => format!("{repository}/blob/v{VERSION}/{file}"),
    }
}

/// Returns the generated part of the metadata.
fn metadata(crds: &[Definition], images: &[Image], changes: &[String]) -> Result<String> {
    let mut text = format!("version: {VERSION}\nappVersion: {VERSION}\n");
    if !REPOSITORY.is_empty() {
        write!(text, "home: {REPOSITORY}\nsources: [{REPOSITORY}]\n")?;
    }
    text += "annotations:\n";
    for (name, value) in [
        ("category", "security"),
        ("license", env!("CARGO_PKG_LICENSE")),
        ("operator", "true"),
        ("prerelease", prerelease(VERSION)),
    ] {
        writeln!(text, "  artifacthub.io/{name}: {value:?}")?;
    }
    for (name, list) in [
        ("changes", serde_saphyr::to_string(&changes)?),
        ("crds", serde_saphyr::to_string(&crds)?),
        ("images", serde_saphyr::to_string(&images)?),
    ] {
        writeln!(text, "  artifacthub.io/{name}: |")?;
        for line in list.lines() {
            writeln!(text, "    {line}")?;
        }
    }
    Ok(text)
}

/// Checks whether a version is one before a release, by the rules of semantic versions; returns a text of YAML.
fn prerelease(version: &str) -> &'static str {
    let version = version.split('+').next().unwrap_or_default();
    if version.contains('-') {
        "true"
    } else {
        "false"
    }
}

fn definition(crd: &CustomResourceDefinition) -> Result<Definition<'_>> {
    let names = &crd.spec.names;
    let described = || {
        let version = crd.spec.versions.first()?;
        let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
        Some((&*version.name, schema.description.as_deref()?))
    };
    let (version, description) =
        described().with_context(|| format!("{} has no description", names.kind))?;
    let words: Vec<&str> = description.split_whitespace().collect();
    Ok(Definition {
        kind: &names.kind,
        version,
        name: format!("{}.{}", names.plural, crd.spec.group),
        display_name: &names.kind,
        description: words.join(" "),
    })
}

/// Returns the images of the default values.
fn images(values: &Value) -> Result<[Image; 3]> {
    let image = |name, at: &str| {
        let image = values
            .pointer(at)
            .with_context(|| format!("no value {at}"))?;
        let repository = image["repository"].as_str();
        let repository = repository.with_context(|| format!("{at} has no repository"))?;
        let tag = image["tag"].as_str().filter(|tag| !tag.is_empty());
        let image = format!("{repository}:{}", tag.unwrap_or(VERSION));
        Ok::<_, anyhow::Error>(Image { name, image })
    };
    Ok([
        image("oz", "/image")?,
        image("oz-harness", "/harness/image")?,
        image("git", "/harness/gitImage")?,
    ])
}

/// Returns the entries of the changelog about a version, each in one line and without links.
fn changes(changelog: &str, version: &str) -> Result<Vec<String>> {
    let is_about = |section: &&str| {
        let heading = section.lines().next().unwrap_or_default();
        heading.split_whitespace().next() == Some(version)
    };
    let section = changelog.split("\n## ").find(is_about);
    let section = section.with_context(|| format!("no section about {version}"))?;
    let mut entries: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in section.lines() {
        if let Some(entry) = line.strip_prefix("- ") {
            entries.push(entry.trim().to_owned());
            is_open = true;
        } else if !line.starts_with("  ") {
            is_open = false;
        } else if let Some(entry) = entries.last_mut().filter(|_| is_open) {
            entry.push(' ');
            entry.push_str(line.trim());
        }
    }
    ensure!(!entries.is_empty(), "no entries about {version}");
    for entry in &mut entries {
        *entry = LINK.replace_all(entry, "$1").into_owned();
    }
    Ok(entries)
}

/// Replaces the text between the marks by `generated`.
fn filled(text: &str, generated: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{generated}{END}{after}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test should stop where it failed")]

    use super::*;

    #[test]
    fn changes_are_entries_of_section_in_one_line_without_links() {
        let changelog = "# Changelog\n\n## 0.2.0 (unreleased)\n\nText.\n\n### A\n\n- One [page](docs/a.md) and [an\n  \
            other](b.md), `code`.\n- Two.\n\n  Not an entry.\n\n## 0.1.0\n\n- Three.\n";
        let entries = changes(changelog, "0.2.0").unwrap();
        assert_eq!(entries[0], "One page and an other, `code`.");
        assert_eq!(entries.len(), 2);
        assert_eq!(changes(changelog, "0.1.0").unwrap(), ["Three."]);
        assert!(changes(changelog, "0.1").is_err());
        assert!(changes("# Changelog\n\n## 0.3.0\n\nText.\n", "0.3.0").is_err());
    }

    #[test]
    fn versions_with_hyphen_are_prereleases() {
        assert_eq!(prerelease("1.0.0-rc.1"), "true");
        assert_eq!(prerelease("1.0.0+build-1"), "false");
        assert_eq!(prerelease("0.1.0"), "false");
    }

    #[test]
    fn generated_part_replaces_content_between_marks() {
        let text = format!("a: b\n{BEGIN}old\n{END}c: d\n");
        let wanted = format!("a: b\n{BEGIN}new\n{END}c: d\n");
        assert_eq!(filled(&text, "new\n"), Some(wanted));
        assert_eq!(filled("a: b\n", ""), None);
    }

    #[test]
    fn metadata_has_annotations_that_are_lists() {
        let root = oz_testkit::repository();
        let definitions = super::super::definitions();
        let files = files(&root, &definitions).unwrap();
        let chart: Value = serde_saphyr::from_str(&files[Path::new(CHART)]).unwrap();
        assert_eq!(chart["version"], VERSION);
        assert_eq!(chart["appVersion"], VERSION);
        let list = |name: &str| -> Vec<Value> {
            let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str();
            serde_saphyr::from_str(text.unwrap()).unwrap()
        };
        let crds = list("crds");
        assert_eq!(crds.len(), definitions.len());
        assert!(crds.iter().all(|crd| crd["description"].is_string()));
        assert!(list("changes").len() > 1);
        assert_eq!(
            list("images")[0]["image"],
            format!("localhost/oz:{VERSION}")
        );
        assert_eq!(chart["annotations"]["artifacthub.io/operator"], "true");
    }
}
