//! `cargo xtask links`: checks whether every relative link in the documents leads to a file, a directory or a
//! heading, and whether the file to which a link leads contains every name of a test or function in the link. If the
//! site is built, it checks the links of the site, too.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use xtask::screen::Screen;

/// A link as a document contains it.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    target: String,
    /// The parts of its text that are code.
    names: Vec<String>,
}

pub(crate) fn run() -> Result<ExitCode> {
    let root = oz_testkit::repository().canonicalize()?;
    let screen = Screen::stdout();
    let mut links = 0;
    let mut broken = Vec::new();
    let documents = documents(&root)?;
    for document in &documents {
        let text = read(&root.join(document))?;
        for link in relative_links(&text) {
            links += 1;
            if let Some(why) = fault(&root, document, &link)? {
                broken.push(format!("{document}: ({}) {why}", link.target));
            }
        }
    }
    for line in &broken {
        screen.line(line)?;
    }
    ensure!(links > 0, "no document has a link");
    let (documents, broken) = (documents.len(), broken.len());
    screen.line(&format!(
        "{links} links in {documents} documents, {broken} broken"
    ))?;
    let site = site(&root, &screen)?;
    Ok(ExitCode::from(u8::from(broken > 0 || site > 0)))
}

/// Prints the broken links of the built site, and returns their number.
fn site(root: &Path, screen: &Screen) -> Result<usize> {
    let Some(checked) = crate::site::check(root)? else {
        return Ok(0);
    };
    for line in &checked.broken {
        screen.line(line)?;
    }
    let broken = checked.broken.len();
    let (links, again) = (checked.links, "`make site` builds it again");
    screen.line(&format!(
        "{links} links in the site, {broken} broken; {again}"
    ))?;
    Ok(broken)
}

/// Returns the documents of the repository, from its root.
fn documents(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.md",
        ])
        .output()
        .context("failed to run git")?;
    ensure!(output.status.success(), "failed to list the documents");
    let names = String::from_utf8(output.stdout)?;
    let existing = names.lines().filter(|name| root.join(name).exists());
    Ok(existing.map(ToOwned::to_owned).collect())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

fn relative_links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    let mut open: Option<Link> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. }) => {
                let target = dest_url.into_string();
                open = (!target.contains("://")).then_some(Link {
                    target,
                    names: Vec::new(),
                });
            }
            Event::Code(name) => {
                if let Some(link) = &mut open {
                    link.names.push(name.into_string());
                }
            }
            Event::End(TagEnd::Link) => links.extend(open.take()),
            _ => {}
        }
    }
    links
}

/// Returns the fault of a link in `document`, if there is one.
fn fault(root: &Path, document: &str, link: &Link) -> Result<Option<String>> {
    let (path, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
    let here = root.join(document);
    let target = match path {
        "" => here.clone(),
        path => here.parent().unwrap_or(root).join(path),
    };
    if !target.exists() {
        return Ok(Some("leads nowhere".to_owned()));
    }
    let kind = target.extension().and_then(|extension| extension.to_str());
    if !anchor.is_empty() && kind == Some("md") && !anchors(&read(&target)?).contains(anchor) {
        return Ok(Some("names no heading there".to_owned()));
    }
    if kind == Some("rs") {
        let source = read(&target)?;
        let missing = link
            .names
            .iter()
            .find(|name| is_function(name) && !source.contains(&format!("fn {name}(")));
        return Ok(missing.map(|name| format!("has no function {name}")));
    }
    Ok(None)
}

/// Checks whether a piece of code is the name of a function, and neither path nor command.
fn is_function(name: &str) -> bool {
    let letters = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    name.chars().all(|letter| letters(letter) || letter == '_')
}

/// Returns the anchors of the headings, as GitHub creates them: in lower case, without punctuation, hyphens
/// for spaces, and a number after a repeated one.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(piece) | Event::Code(piece) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&piece);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let kept = |letter: &char| letter.is_alphanumeric() || "-_ ".contains(*letter);
                let title = heading.take().unwrap_or_default().to_lowercase();
                let anchor = title
                    .chars()
                    .filter(kept)
                    .collect::<String>()
                    .replace(' ', "-");
                let numbered = |number: usize| format!("{anchor}-{number}");
                let free = if anchors.contains(&anchor) {
                    (1..).map(numbered).find(|name| !anchors.contains(name))
                } else {
                    Some(anchor.clone())
                };
                anchors.extend(free);
            }
            _ => {}
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(target: &str, names: &[&str]) -> Link {
        Link {
            target: target.to_owned(),
            names: names.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn links_are_found_also_in_tables_and_code_is_no_link() {
        let text = "See [one](a.md) and [out](https://example.test/).\n\n| a |\n|---|\n\
                    | [`test_of_it`](b.rs) |\n\n```\n[no](c.md)\n```\n";
        assert_eq!(
            relative_links(text),
            [link("a.md", &[]), link("b.rs", &["test_of_it"])]
        );
    }

    #[test]
    fn headings_have_the_anchors_that_github_gives_them() {
        let text = "# What it is\n## The webhook's port\n## `a` & b\n## What it is\n";
        let anchors = anchors(text);
        for anchor in ["what-it-is", "the-webhooks-port", "a--b", "what-it-is-1"] {
            assert!(anchors.contains(anchor), "{anchor}: {anchors:?}");
        }
    }

    #[test]
    fn broken_link_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir(root.join("docs")).unwrap();
        std::fs::write(root.join("README.md"), "# Title\n").unwrap();
        std::fs::write(root.join("code.rs"), "fn there() {}\n").unwrap();
        let fault = |link: Link| fault(root, "docs/a.md", &link).unwrap();
        std::fs::write(root.join("docs/a.md"), "# A\n").unwrap();
        assert_eq!(fault(link("../README.md#title", &[])), None);
        assert_eq!(fault(link("#a", &[])), None);
        assert_eq!(fault(link("../code.rs", &["there", "cargo test"])), None);
        for (broken, why) in [
            (link("../missing.md", &[]), "leads nowhere"),
            (link("../README.md#other", &[]), "names no heading there"),
            (link("../code.rs", &["gone"]), "has no function gone"),
        ] {
            assert_eq!(fault(broken).as_deref(), Some(why));
        }
    }
}
