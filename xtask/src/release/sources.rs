//! The state of the sources of a release, and the reasons to refuse it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use regex::Regex;
use serde_json::Value;

use super::changelog;
use crate::git;

/// The word of a section of the changelog that has no date yet.
const UNRELEASED: &str = "unreleased";
/// The maximum number of changed files that an error names.
const NAMED: usize = 5;

/// The facts on which a release depends.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    /// The version to release.
    pub(crate) version: String,
    /// The places that state the version, and the version there.
    pub(crate) versions: Vec<(String, String)>,
    pub(crate) changelog: String,
    /// The files that differ from the commit.
    pub(crate) changes: Vec<String>,
    /// The tags of the commit.
    pub(crate) tags: Vec<String>,
    /// True if the version has a tag, at any commit.
    pub(crate) is_tagged: bool,
}

impl Sources {
    /// Reads the facts of the repository at `root`.
    ///
    /// # Errors
    /// When a file cannot be read, or git fails.
    pub(crate) fn read(root: &Path, version: &str) -> Result<Self> {
        let text = |name: &str| {
            fs::read_to_string(root.join(name)).with_context(|| format!("failed to read {name}"))
        };
        let mut versions = cargo_versions(&text("Cargo.toml")?)?;
        let chart = "charts/oz/Chart.yaml";
        let values: Value = serde_saphyr::from_str(&text(chart)?)
            .with_context(|| format!("failed to parse {chart}"))?;
        for field in ["version", "appVersion"] {
            let version = values[field].as_str().context("it is no text");
            let version = version.with_context(|| format!("failed to read {field} of {chart}"))?;
            versions.push((format!("{field} of {chart}"), version.to_owned()));
        }
        Ok(Self {
            version: version.to_owned(),
            versions,
            changelog: text("CHANGELOG.md")?,
            changes: git::changes(root)?,
            tags: git::tags(root)?,
            is_tagged: git::has_tag(root, &format!("v{version}"))?,
        })
    }

    /// Returns the reasons to refuse the release.
    pub(crate) fn faults(&self) -> Vec<String> {
        let version = &self.version;
        let mut faults = Vec::new();
        if !is_version(version) {
            faults.push(format!(
                "{version} is no version: name it like 1.2.3, without `v`"
            ));
        }
        faults.extend(self.tree_fault());
        for (place, found) in &self.versions {
            if found != version {
                faults.push(format!("{place} is {found}, not {version}"));
            }
        }
        faults.extend(self.changelog_fault());
        let tag = format!("v{version}");
        let has_tag = self.tags.contains(&tag);
        let others = self.tags.iter().filter(|it| {
            let version = it.strip_prefix('v');
            **it != tag && version.is_some_and(is_version)
        });
        faults.extend(others.map(|other| format!("the commit has tag {other}, not {tag}")));
        if self.is_tagged && !has_tag {
            faults.push(format!(
                "version {version} exists: tag {tag} is at another commit; raise the version"
            ));
        }
        faults
    }

    fn tree_fault(&self) -> Option<String> {
        let names = self.changes.iter().take(NAMED);
        let names: Vec<&str> = names.filter_map(|line| line.get(3..)).collect();
        let more = match self.changes.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!self.changes.is_empty()).then(|| {
            format!(
                "the tree has changes outside of the commit: {}{more}; commit or remove them",
                names.join(", ")
            )
        })
    }

    fn changelog_fault(&self) -> Option<String> {
        let version = &self.version;
        let sections = changelog::sections(&self.changelog);
        let Some(section) = sections.first() else {
            return Some(format!(
                "CHANGELOG.md has no section: add `## {version} (DATE)`"
            ));
        };
        if section.version != *version {
            let found = section.version;
            return Some(format!(
                "the first section of CHANGELOG.md is {found}, not {version}"
            ));
        }
        if section.text.is_empty() {
            return Some(format!("the section of {version} in CHANGELOG.md is empty"));
        }
        // Until the tag, the section collects changes.
        let is_open = section.remark.eq_ignore_ascii_case(UNRELEASED);
        (is_open && self.is_tagged).then(|| {
            format!("the section of {version} in CHANGELOG.md says {UNRELEASED}: write the date")
        })
    }
}

/// Checks whether a text is a version: three numbers, and optionally a hyphen with a pre-release.
fn is_version(text: &str) -> bool {
    let (numbers, pre_release) = match text.split_once('-') {
        Some((numbers, rest)) => (numbers, Some(rest)),
        None => (text, None),
    };
    let is_number = |part: &str| {
        let is_padded = part.len() > 1 && part.starts_with('0');
        !part.is_empty() && !is_padded && part.bytes().all(|it| it.is_ascii_digit())
    };
    let allowed = |it: u8| it.is_ascii_alphanumeric() || it == b'.' || it == b'-';
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && pre_release.is_none_or(|rest| !rest.is_empty() && rest.bytes().all(allowed))
}

/// Returns the versions in the manifest of the workspace: its own, and those by which its packages refer to each
/// other.
fn cargo_versions(manifest: &str) -> Result<Vec<(String, String)>> {
    let section = manifest.split_once("[workspace.package]\n");
    let section = section.context("Cargo.toml has no [workspace.package]")?.1;
    let section = section.split("\n[").next().unwrap_or(section);
    let own = Regex::new(r#"(?m)^version = "([^"]*)""#)?;
    let own = own.captures(section);
    let own = own.context("[workspace.package] of Cargo.toml has no version")?;
    let mut versions = vec![("the version of Cargo.toml".to_owned(), own[1].to_owned())];
    let local = Regex::new(r#"(?m)^([\w-]+) = \{ path = "[^"]*", version = "([^"]*)""#)?;
    for found in local.captures_iter(manifest) {
        versions.push((
            format!("the version of {} in Cargo.toml", &found[1]),
            found[2].to_owned(),
        ));
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Sources {
        Sources {
            version: "0.2.0".to_owned(),
            versions: vec![
                ("the version of Cargo.toml".to_owned(), "0.2.0".to_owned()),
                (
                    "version of charts/oz/Chart.yaml".to_owned(),
                    "0.2.0".to_owned(),
                ),
            ],
            changelog: "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- A change.\n".to_owned(),
            changes: Vec::new(),
            tags: Vec::new(),
            is_tagged: false,
        }
    }

    #[test]
    fn releasable_sources_have_no_fault() {
        assert_eq!(sources().faults(), [""; 0]);
        let tagged = Sources {
            tags: vec!["v0.2.0".to_owned(), "nightly".to_owned()],
            is_tagged: true,
            ..sources()
        };
        assert_eq!(tagged.faults(), [""; 0]);
        let open = Sources {
            changelog: "## 0.2.0 (unreleased)\n\n- A change.\n".to_owned(),
            ..sources()
        };
        assert_eq!(open.faults(), [""; 0]);
    }

    #[test]
    fn each_fault_is_reported() {
        let changelog = |text: &str| Sources {
            changelog: text.to_owned(),
            ..sources()
        };
        let open = "## 0.2.0 (Unreleased)\n\n- A change.\n";
        let cases = [
            (
                Sources {
                    changes: (0..7).map(|it| format!(" M file-{it}")).collect(),
                    ..sources()
                },
                "outside of the commit: file-0, file-1, file-2, file-3, file-4 and 2 more;",
            ),
            (
                Sources {
                    versions: vec![("version of Chart.yaml".to_owned(), "0.1.0".to_owned())],
                    ..sources()
                },
                "version of Chart.yaml is 0.1.0, not 0.2.0",
            ),
            (
                changelog("## 0.1.0\n\n- Old.\n"),
                "CHANGELOG.md is 0.1.0, not 0.2.0",
            ),
            (changelog("# Changelog\n"), "CHANGELOG.md has no section"),
            (
                changelog("## 0.2.0\n\n## 0.1.0\n\n- Old.\n"),
                "0.2.0 in CHANGELOG.md is empty",
            ),
            (
                Sources {
                    tags: vec!["v0.2.0".to_owned()],
                    is_tagged: true,
                    ..changelog(open)
                },
                "says unreleased",
            ),
            (
                Sources {
                    tags: vec!["v0.3.0".to_owned()],
                    ..sources()
                },
                "the commit has tag v0.3.0, not v0.2.0",
            ),
            (
                Sources {
                    is_tagged: true,
                    ..sources()
                },
                "version 0.2.0 exists: tag v0.2.0 is at another commit",
            ),
        ];
        for (sources, fault) in cases {
            let faults = sources.faults();
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].contains(fault), "{faults:?}");
        }
    }

    #[test]
    fn versions_are_three_numbers() {
        for (text, expected) in [
            ("1.2.3", true),
            ("0.1.0-rc.1", true),
            ("v0.1.0", false),
            ("1.2", false),
            ("1.02.3", false),
            ("1.2.x", false),
            ("1.2.3-", false),
            ("../../1.2.3", false),
            ("1.2.3-../x", false),
            ("", false),
        ] {
            assert_eq!(is_version(text), expected, "{text}");
        }
    }

    #[test]
    fn repository_is_read_with_its_tags_and_changes() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("charts/oz")).unwrap();
        let manifest = "[workspace.package]\nversion = \"0.2.0\"\n\n[workspace.dependencies]\n\
                        oz-core = { path = \"crates/core\" }\n\
                        oz-runtime = { path = \"crates/runtime\", version = \"0.1.0\" }\n\
                        serde = { version = \"1\" }\n";
        fs::write(root.join("Cargo.toml"), manifest).unwrap();
        let chart = "version: 0.2.0\nappVersion: 0.2.0\n";
        fs::write(root.join("charts/oz/Chart.yaml"), chart).unwrap();
        fs::write(
            root.join("CHANGELOG.md"),
            "## 0.2.0 (2026-12-01)\n\n- One.\n",
        )
        .unwrap();
        git::tests::commit(root);
        let faults = || Sources::read(root, "0.2.0").unwrap().faults();
        assert_eq!(
            faults(),
            ["the version of oz-runtime in Cargo.toml is 0.1.0, not 0.2.0"]
        );
        fs::write(root.join("Cargo.toml"), manifest.replace("0.1.0", "0.2.0")).unwrap();
        let fault = faults().join("; ");
        assert!(
            fault.contains("outside of the commit: Cargo.toml;"),
            "{fault}"
        );
        git::tests::commit(root);
        git::tests::tag(root, "v0.2.0");
        assert_eq!(faults(), [""; 0]);
        fs::write(
            root.join("CHANGELOG.md"),
            "## 0.2.0 (2026-12-02)\n\n- One.\n",
        )
        .unwrap();
        git::tests::commit(root);
        let fault = faults().join("; ");
        assert!(fault.contains("version 0.2.0 exists"), "{fault}");
    }

    #[test]
    fn places_of_this_repository_agree() {
        let version = env!("CARGO_PKG_VERSION");
        let root = oz_testkit::repository();
        let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let versions = cargo_versions(&manifest).unwrap();
        assert_eq!(versions.len(), 3, "{versions:?}");
        for (place, found) in versions {
            assert_eq!(found, version, "{place}");
        }
    }
}
