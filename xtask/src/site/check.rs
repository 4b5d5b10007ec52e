//! The links of the built site: whether each leads to a file of the site, to an anchor there, or to a file of the
//! repository.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use regex::Regex;

use super::{BOOK, DIRECTORY, files, read};

/// The links of the site, and those that are broken.
pub(crate) struct Checked {
    pub(crate) links: usize,
    pub(crate) broken: Vec<String>,
}

/// Checks the built site; `None` if there is none.
pub(crate) fn check(root: &Path) -> Result<Option<Checked>> {
    let site = root.join(DIRECTORY);
    if !site.exists() {
        return Ok(None);
    }
    let configuration = read(&root.join(BOOK).join("book.toml"))?;
    let address = Regex::new(r#"(?m)^git-repository-url = "([^"]*)"$"#)?;
    let address = address
        .captures(&configuration)
        .map(|found| found[1].to_owned());
    let links = Regex::new(r#"<(?:a|img|link|script)\b[^>]*?\b(?:href|src)="([^"]*)""#)?;
    let ids = Regex::new(r#"\bid="([^"]+)""#)?;
    let files: BTreeSet<PathBuf> = files(&site, Path::new(""))?.into_iter().collect();
    let mut pages = BTreeMap::new();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|it| it == "html"))
    {
        pages.insert(file.clone(), read(&site.join(file))?);
    }
    let anchors: BTreeMap<&PathBuf, BTreeSet<&str>> = pages
        .iter()
        .map(|(page, text)| {
            let ids = ids.captures_iter(text).filter_map(|id| id.get(1));
            (page, ids.map(|id| id.as_str()).collect())
        })
        .collect();
    let target = Target {
        root,
        address: address.as_deref(),
        files: &files,
        anchors: &anchors,
    };
    let mut checked = Checked {
        links: 0,
        broken: Vec::new(),
    };
    for (page, text) in &pages {
        for link in links.captures_iter(text) {
            checked.links += 1;
            let link = decoded(&link[1]);
            if let Some(fault) = target.fault(page, &link)? {
                let page = Path::new(DIRECTORY).join(page);
                let line = format!("{}: ({link}) {fault}", page.display());
                checked.broken.push(line);
            }
        }
    }
    checked.broken.sort();
    checked.broken.dedup();
    Ok(Some(checked))
}

/// What links may lead to.
struct Target<'a> {
    root: &'a Path,
    /// The address of the repository.
    address: Option<&'a str>,
    files: &'a BTreeSet<PathBuf>,
    /// The anchors of the pages.
    anchors: &'a BTreeMap<&'a PathBuf, BTreeSet<&'a str>>,
}

impl Target<'_> {
    /// Returns the fault of a link on a page, if there is one.
    fn fault(&self, page: &Path, link: &str) -> Result<Option<&'static str>> {
        if let Some(file) = self.in_repository(link) {
            let is_missing = !self.root.join(file).exists();
            return Ok(is_missing.then_some("leads to no file of the repository"));
        }
        let is_elsewhere =
            link.contains("://") || link.starts_with("mailto:") || link.starts_with("javascript:");
        if is_elsewhere || link.is_empty() {
            return Ok(None);
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let path = path.split('?').next().unwrap_or_default();
        let file = if path.is_empty() {
            page.to_owned()
        } else {
            let directory = page.parent().context("a page has no directory")?;
            let Some(file) = within_site(&directory.join(path)) else {
                return Ok(Some("leaves the site"));
            };
            file
        };
        let file = if path.ends_with('/') {
            file.join("index.html")
        } else {
            file
        };
        if !self.files.contains(&file) {
            return Ok(Some("leads nowhere"));
        }
        let anchors = self.anchors.get(&file);
        let is_dead =
            !anchor.is_empty() && anchors.is_some_and(|anchors| !anchors.contains(anchor));
        Ok(is_dead.then_some("names no heading there"))
    }

    /// Returns the file of the repository to which a link leads.
    fn in_repository<'l>(&self, link: &'l str) -> Option<&'l str> {
        let link = link.split('#').next().unwrap_or_default();
        let checkout = format!("file://{}/", self.root.display());
        if let Some(file) = link.strip_prefix(&checkout) {
            return Some(file);
        }
        let rest = link.strip_prefix(self.address?)?;
        let rest = ["/blob/", "/tree/"]
            .iter()
            .find_map(|form| rest.strip_prefix(*form))?;
        rest.split_once('/').map(|(_, file)| file)
    }
}

/// Returns a path of the site without `..`; `None` if it leaves the site.
fn within_site(path: &Path) -> Option<PathBuf> {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir if !parts.pop() => return None,
            Component::RootDir | Component::Prefix(_) => return None,
            Component::ParentDir | Component::CurDir => {}
        }
    }
    Some(parts)
}

/// Returns an attribute of HTML as text.
fn decoded(attribute: &str) -> String {
    attribute
        .replace("&quot;", "\"")
        .replace("&#x27;", "'")
        .replace("&#39;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn broken_link_of_the_site_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        assert!(check(root).unwrap().is_none());
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("Makefile", "");
        write(
            "target/book/book.toml",
            "[output.html]\ngit-repository-url = \"https://git.test/oz\"\n",
        );
        write(
            "target/site/index.html",
            "<h1 id=\"top\"></h1><script src=\"a.js\"></script>",
        );
        write("target/site/a.js", "");
        let page = "target/site/guides/b.html";
        for (link, fault) in [
            ("../index.html#top", None),
            ("#own", None),
            ("https://elsewhere.test/blob/v1/gone", None),
            ("https://git.test/oz/blob/v1/Makefile#line", None),
            (
                "https://git.test/oz/blob/v1/gone",
                Some("leads to no file of the repository"),
            ),
            ("../index.html#other", Some("names no heading there")),
            ("gone.html", Some("leads nowhere")),
            ("../../book/book.toml", Some("leaves the site")),
        ] {
            write(
                page,
                &format!("<h1 id=\"own\"></h1><a class=\"x\" href=\"{link}\">x</a>"),
            );
            let checked = check(root).unwrap().unwrap();
            assert_eq!(checked.links, 2, "{link}");
            let expected: Vec<String> = fault
                .map(|fault| format!("{page}: ({link}) {fault}"))
                .into_iter()
                .collect();
            assert_eq!(checked.broken, expected);
        }
    }
}
