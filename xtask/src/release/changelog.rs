//! The sections of CHANGELOG.md, and the release notes that are cut from it.

use anyhow::{Context as _, Result};

/// The section of one version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Section<'a> {
    pub(crate) version: &'a str,
    /// The rest of the heading, such as the date, without brackets.
    pub(crate) remark: &'a str,
    /// The text below the heading.
    pub(crate) text: &'a str,
}

/// Returns the sections in their order, the newest first.
pub(crate) fn sections(changelog: &str) -> Vec<Section<'_>> {
    let mut sections = Vec::new();
    let mut rest = changelog;
    while let Some((heading, below)) = next_heading(rest) {
        let text = next_heading_start(below).map_or(below, |end| &below[..end]);
        let mut words = heading.splitn(2, char::is_whitespace);
        let version = words.next().unwrap_or(heading);
        let brackets = |letter: char| "[]()-–— ".contains(letter);
        sections.push(Section {
            version: version.trim_matches(brackets),
            remark: words
                .next()
                .map_or("", |remark| remark.trim_matches(brackets)),
            text: text.trim(),
        });
        rest = below;
    }
    sections
}

/// Returns the next heading of a section, and the text below it.
fn next_heading(text: &str) -> Option<(&str, &str)> {
    let heading = &text[next_heading_start(text)?..];
    let (line, below) = heading.split_once('\n').unwrap_or((heading, ""));
    Some((line.trim_start_matches('#').trim(), below))
}

fn next_heading_start(text: &str) -> Option<usize> {
    let mark = "## ";
    if text.starts_with(mark) {
        return Some(0);
    }
    text.find("\n## ").map(|start| start + 1)
}

/// Returns the release notes of a version: its section, in which relative links lead to the repository `source` at
/// the release's tag, if its address is known.
///
/// # Errors
/// When the changelog has no such section.
pub(crate) fn notes(changelog: &str, version: &str, source: Option<&str>) -> Result<String> {
    let mut sections = sections(changelog).into_iter();
    let section = sections.find(|section| section.version == version);
    let section =
        section.with_context(|| format!("CHANGELOG.md has no section of version {version}"))?;
    let text = match source {
        Some(source) => absolute(section.text, &format!("{source}/blob/v{version}")),
        None => section.text.to_owned(),
    };
    Ok(format!("# oz {version}\n\n{text}\n"))
}

/// Makes relative links absolute. A link target with a scheme, or within the page, stays.
fn absolute(text: &str, base: &str) -> String {
    let mut parts = text.split("](");
    let mut result = parts.next().map_or_else(String::new, ToOwned::to_owned);
    for part in parts {
        let target = part.split_once(')').map_or(part, |(target, _)| target);
        result += "](";
        if !target.starts_with('#') && !target.contains("://") {
            result += &format!("{base}/");
        }
        result += part.trim_start_matches("./");
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\nWords.\n\n## 0.2.0 (2026-12-01)\n\n### Access\n\n- See [a \
                             guide](docs/guides/a.md#b), [a\n  page](https://example.test/x) and [c](#c).\n\n## \
                             [0.1.0] - 2026-11-01\n\n- First.\n\n## 0.0.1 (unreleased)\n";

    #[test]
    fn sections_have_version_remark_and_text() {
        let sections = sections(CHANGELOG);
        let headings: Vec<_> = sections.iter().map(|it| (it.version, it.remark)).collect();
        let expected = [
            ("0.2.0", "2026-12-01"),
            ("0.1.0", "2026-11-01"),
            ("0.0.1", "unreleased"),
        ];
        assert_eq!(headings, expected);
        assert!(sections[0].text.starts_with("### Access\n"));
        assert!(sections[0].text.ends_with("[c](#c)."));
        assert_eq!(sections[1].text, "- First.");
        assert_eq!(sections[2].text, "");
    }

    #[test]
    fn notes_are_the_section_with_links_to_the_tag() {
        let notes = notes(CHANGELOG, "0.2.0", Some("https://example.test/oz")).unwrap();
        let link = "[a guide](https://example.test/oz/blob/v0.2.0/docs/guides/a.md#b)";
        assert!(notes.contains(link), "{notes}");
        assert!(notes.contains("page](https://example.test/x) and [c](#c)."));
        assert!(notes.starts_with("# oz 0.2.0\n\n### Access\n"));
        assert!(!notes.contains("First"), "{notes}");
    }

    #[test]
    fn notes_without_address_keep_relative_links() {
        let notes = notes(CHANGELOG, "0.2.0", None).unwrap();
        assert!(notes.contains("](docs/guides/a.md#b)"), "{notes}");
    }

    #[test]
    fn notes_of_an_unknown_version_are_refused() {
        let error = notes(CHANGELOG, "0.3.0", None).unwrap_err().to_string();
        assert!(error.contains("no section of version 0.3.0"), "{error}");
    }

    #[test]
    fn changelog_of_this_repository_has_notes_of_its_version() {
        let path = oz_testkit::repository().join("CHANGELOG.md");
        let changelog = std::fs::read_to_string(path).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(sections(&changelog)[0].version, version);
        let notes = notes(&changelog, version, Some("https://example.test/oz")).unwrap();
        assert!(!notes.contains("](docs/"), "{notes}");
    }
}
