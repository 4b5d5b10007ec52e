//! The links of a page in the site: those that leave `docs` lead to the repository, and those to a README to the index
//! of its directory.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag};

use super::{DOCS, LEFT_OUT, is_page, published};

/// The repository at a tag.
pub(super) struct Repository {
    /// The address, without a slash at its end.
    pub(super) url: String,
    pub(super) tag: String,
}

/// Returns the text of a page, which is at `page` in `docs`, with the links of the site.
pub(super) fn page(
    root: &Path,
    page: &Path,
    text: &str,
    repository: Option<&Repository>,
) -> String {
    let mut replaced = text.to_owned();
    // From the end, so that earlier ranges stay valid.
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event else {
            continue;
        };
        let source = text.get(range.clone()).unwrap_or_default();
        let written = format!("]({dest_url})");
        let Some(at) = source.rfind(&written) else {
            continue;
        };
        if let Some(link) = target(root, page, &dest_url, repository) {
            let from = range.start + at;
            changes.push((from..from + written.len(), format!("]({link})")));
        }
    }
    changes.sort_by_key(|(range, _)| range.start);
    for (range, link) in changes.into_iter().rev() {
        replaced.replace_range(range, &link);
    }
    replaced
}

/// Returns the link of the site for one of a page; `None` if they are the same.
fn target(root: &Path, page: &Path, link: &str, repository: Option<&Repository>) -> Option<String> {
    if link.contains("://") || link.starts_with('#') || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, format!("#{anchor}")),
        None => (link, String::new()),
    };
    let directory = Path::new(DOCS).join(page.parent()?);
    let file = normalized(&directory.join(path))?;
    let is_directory = root.join(&file).is_dir();
    let within = file.strip_prefix(DOCS).ok();
    let within =
        within.filter(|within| !LEFT_OUT.iter().any(|left_out| within.starts_with(left_out)));
    let Some(within) = within else {
        return Some(outside(root, &file, &anchor, is_directory, repository));
    };
    let readme = within.join("README.md");
    if is_directory && root.join(DOCS).join(&readme).exists() {
        let path = path.trim_end_matches('/');
        return Some(format!("{path}/index.md{anchor}"));
    }
    if is_directory {
        return Some(outside(root, &file, &anchor, true, repository));
    }
    let renamed = is_page(within) && published(within) != within;
    renamed.then(|| format!("{}{anchor}", path.replace("README.md", "index.md")))
}

/// Returns the link to a file or directory of the repository; without an address, to that of the checkout.
fn outside(
    root: &Path,
    file: &Path,
    anchor: &str,
    is_directory: bool,
    repository: Option<&Repository>,
) -> String {
    let file = file.display();
    match repository {
        Some(Repository { url, tag }) => {
            let form = if is_directory { "tree" } else { "blob" };
            format!("{url}/{form}/{tag}/{file}{anchor}")
        }
        None => format!("file://{}/{file}{anchor}", root.display()),
    }
}

/// Returns a path without `.` and `..`; `None` if it leaves the repository.
fn normalized(path: &Path) -> Option<PathBuf> {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir if !parts.pop() => return None,
            _ => {}
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> Repository {
        Repository {
            url: "https://git.example/oz".to_owned(),
            tag: "v1.2.3".to_owned(),
        }
    }

    #[test]
    fn link_that_leaves_the_documentation_leads_to_the_repository_at_the_tag() {
        let root = oz_testkit::repository();
        let of = |link: &str| {
            target(
                &root,
                Path::new("guides/install.md"),
                link,
                Some(&repository()),
            )
        };
        let base = "https://git.example/oz";
        for (link, expected) in [
            (
                "../../SECURITY.md#the-gate",
                format!("{base}/blob/v1.2.3/SECURITY.md#the-gate"),
            ),
            (
                "../../deploy/rbac",
                format!("{base}/tree/v1.2.3/deploy/rbac"),
            ),
            ("../man", format!("{base}/tree/v1.2.3/docs/man")),
        ] {
            assert_eq!(of(link), Some(expected), "{link}");
        }
    }

    #[test]
    fn link_within_the_documentation_stays_and_readme_is_index() {
        let root = oz_testkit::repository();
        let of = |link: &str| {
            target(
                &root,
                Path::new("guides/install.md"),
                link,
                Some(&repository()),
            )
        };
        for (link, expected) in [
            ("upgrade.md", None),
            ("#values", None),
            ("https://example.test/a.md", None),
            ("../reference/configuration.md#log", None),
            ("../reference/ozconfiguration.schema.json", None),
            ("../adr/README.md", Some("../adr/index.md")),
            ("../reference/crds", Some("../reference/crds/index.md")),
        ] {
            assert_eq!(of(link).as_deref(), expected, "{link}");
        }
    }

    #[test]
    fn without_address_link_leads_to_the_file_of_the_checkout() {
        let root = oz_testkit::repository();
        let link = target(&root, Path::new("promises.md"), "../Makefile", None);
        assert_eq!(link, Some(format!("file://{}/Makefile", root.display())));
    }

    #[test]
    fn only_links_change_and_code_does_not() {
        let root = oz_testkit::repository();
        let text = "[a](../Makefile), `[a](../Makefile)` and\n\n| [`b`](../Makefile) |\n|---|\n\n\
                    ```text\n[a](../Makefile)\n```\n";
        let expected = "[a](R/blob/T/Makefile), `[a](../Makefile)` and\n\n| [`b`](R/blob/T/Makefile) |\n|---|\n\n\
                        ```text\n[a](../Makefile)\n```\n";
        let repository = Repository {
            url: "R".to_owned(),
            tag: "T".to_owned(),
        };
        let page = page(&root, Path::new("promises.md"), text, Some(&repository));
        assert_eq!(page, expected);
    }
}
