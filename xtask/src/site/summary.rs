//! The table of contents of the site, by audience: the pages that the tables of docs/README.md link, in their order,
//! and below the index of a directory its other pages.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::published;

/// Returns the table of contents. `audiences` is the text of docs/README.md, `pages` are all pages.
pub(super) fn text(
    audiences: &str,
    pages: &[&PathBuf],
    title: impl Fn(&Path) -> Result<String>,
) -> Result<String> {
    let mut summary = format!(
        "# Summary\n\n[{}](index.md)\n",
        title(Path::new("README.md"))?
    );
    let mut listed: Vec<&Path> = vec![Path::new("README.md")];
    for (audience, links) in sections(audiences) {
        write!(summary, "\n# {audience}\n\n")?;
        for link in links {
            let Some(page) = pages.iter().find(|page| page.as_path() == Path::new(&link)) else {
                continue;
            };
            if listed.contains(&page.as_path()) {
                continue;
            }
            listed.push(page);
            line(&mut summary, "", page, &title)?;
            if page.ends_with("README.md") {
                for below in pages {
                    if below.parent() == page.parent() && below != page {
                        ensure!(
                            !listed.contains(&below.as_path()),
                            "{} is listed before its index",
                            below.display()
                        );
                        listed.push(below);
                        line(&mut summary, "  ", below, &title)?;
                    }
                }
            }
        }
    }
    for page in pages {
        ensure!(
            listed.contains(&page.as_path()),
            "docs/{} is in no table of docs/README.md; add it for an audience",
            page.display()
        );
    }
    Ok(summary)
}

fn line(
    summary: &mut String,
    indentation: &str,
    page: &Path,
    title: impl Fn(&Path) -> Result<String>,
) -> Result<()> {
    let (title, page) = (title(page)?, published(page));
    writeln!(summary, "{indentation}- [{title}]({})", page.display())?;
    Ok(())
}

/// Returns the headings of the second level, each with the targets of its links.
fn sections(text: &str) -> Vec<(String, Vec<String>)> {
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    let mut in_heading = false;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading {
                level: HeadingLevel::H2,
                ..
            }) => {
                in_heading = true;
                sections.push((String::new(), Vec::new()));
            }
            Event::End(TagEnd::Heading(_)) => in_heading = false,
            Event::Text(piece) if in_heading => {
                if let Some((heading, _)) = sections.last_mut() {
                    heading.push_str(&piece);
                }
            }
            Event::Start(Tag::Link { dest_url, .. }) => {
                let path = dest_url.split('#').next().unwrap_or_default();
                if let Some((_, links)) = sections.last_mut() {
                    links.push(path.to_owned());
                }
            }
            _ => {}
        }
    }
    sections
}

/// Returns the title of a page: its first heading, without markup.
pub(super) fn title(text: &str) -> Result<String> {
    let mut title = None;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => title = Some(String::new()),
            Event::Text(piece) | Event::Code(piece) => {
                if let Some(title) = &mut title {
                    title.push_str(&piece);
                }
            }
            Event::End(TagEnd::Heading(_)) => break,
            _ => {}
        }
    }
    title.context("the page has no heading")
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUDIENCES: &str = "# Docs\n\n## Users\n\n| task | page |\n|---|---|\n| a | [first](a.md#x), [out](../b.md) |\n\n\
                             ## Others\n\n- [again](a.md), [decisions](adr/README.md)\n";

    fn summary(pages: &[&str]) -> Result<String> {
        let pages: Vec<PathBuf> = pages.iter().map(PathBuf::from).collect();
        let pages: Vec<&PathBuf> = pages.iter().collect();
        text(AUDIENCES, &pages, |page| Ok(page.display().to_string()))
    }

    #[test]
    fn pages_are_listed_once_by_audience_and_below_their_index() {
        let summary = summary(&["README.md", "a.md", "adr/0001.md", "adr/README.md"]).unwrap();
        assert_eq!(
            summary,
            "# Summary\n\n[README.md](index.md)\n\n# Users\n\n- [a.md](a.md)\n\n# Others\n\n\
             - [adr/README.md](adr/index.md)\n  - [adr/0001.md](adr/0001.md)\n"
        );
    }

    #[test]
    fn page_for_no_audience_is_an_error() {
        let error = summary(&["README.md", "a.md", "new.md"]).unwrap_err();
        assert!(error.to_string().starts_with("docs/new.md is in no table"));
    }

    #[test]
    fn title_is_the_first_heading_without_markup() {
        assert_eq!(
            title("<!-- a -->\n\n# The `b` of\n\n## C\n").unwrap(),
            "The b of"
        );
        assert!(title("text").is_err());
    }
}
