//! `cargo xtask site`: the pages of `docs` as a site with search, in target/site. mdBook renders a copy of the pages,
//! in which links that leave `docs` lead to the repository at the tag of the release.

mod check;
mod rewrite;
mod search;
mod summary;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

pub(crate) use check::check;
use rewrite::Repository;
use xtask::screen::Screen;

/// The directory of the site, from the root of the repository.
const DIRECTORY: &str = "target/site";
/// The copy of the pages that mdBook reads.
const BOOK: &str = "target/book";
/// The directory of the pages.
const DOCS: &str = "docs";
/// Directories of `docs` that are no pages: links to them lead to the repository.
const LEFT_OUT: [&str; 1] = ["man"];

/// The programs and addresses of the site.
#[derive(Args)]
pub(crate) struct Options {
    /// The mdBook program.
    #[arg(long, default_value = "mdbook", value_name = "FILE")]
    mdbook: PathBuf,
    /// The address of the repository, to which links that leave the documentation lead. By default, they lead to the
    /// files of this checkout.
    #[arg(long, value_name = "URL")]
    repository: Option<String>,
    /// The tag to which they lead, by default that of this version.
    #[arg(long, default_value = concat!("v", env!("CARGO_PKG_VERSION")), value_name = "TAG")]
    tag: String,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = oz_testkit::repository().canonicalize()?;
    let repository = options.repository.as_ref().map(|url| Repository {
        url: url.trim_end_matches('/').to_owned(),
        tag: options.tag.clone(),
    });
    let pages = copy(&root, repository.as_ref())?;
    remove(&root.join(DIRECTORY))?;
    let status = Command::new(&options.mdbook)
        .arg("build")
        .arg(root.join(BOOK))
        .status()
        .with_context(|| {
            let program = options.mdbook.display();
            format!("failed to run {program}; `make site` installs it")
        })?;
    ensure!(status.success(), "mdBook failed");
    let found = search::check(&root, &root.join(DIRECTORY))?;
    Screen::stdout().line(&format!(
        "{pages} pages in {DIRECTORY}; the search index has {found} names"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the input of mdBook, and returns the number of pages.
fn copy(root: &Path, repository: Option<&Repository>) -> Result<usize> {
    let book = root.join(BOOK);
    remove(&book)?;
    let files = files(&root.join(DOCS), Path::new(""))?;
    let mut pages = 0;
    for file in &files {
        let from = root.join(DOCS).join(file);
        let to = book.join("src").join(published(file));
        if let Some(directory) = to.parent() {
            fs::create_dir_all(directory)?;
        }
        if is_page(file) {
            pages += 1;
            let text = read(&from)?;
            write(&to, &rewrite::page(root, file, &text, repository))?;
        } else {
            fs::copy(&from, &to).with_context(|| format!("failed to copy {}", from.display()))?;
        }
    }
    let title = |page: &Path| summary::title(&read(&root.join(DOCS).join(page))?);
    let list: Vec<&PathBuf> = files.iter().filter(|file| is_page(file)).collect();
    let audiences = read(&root.join(DOCS).join("README.md"))?;
    write(
        &book.join("src/SUMMARY.md"),
        &summary::text(&audiences, &list, title)?,
    )?;
    write(&book.join("book.toml"), &configuration(repository))?;
    Ok(pages)
}

/// Returns the configuration of mdBook.
fn configuration(repository: Option<&Repository>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let link = repository.map_or_else(String::new, |repository| {
        format!("git-repository-url = \"{}\"\n", repository.url)
    });
    format!(
        "[book]\ntitle = \"oz {version}\"\nlanguage = \"en\"\nsrc = \"src\"\n\n\
         [build]\nbuild-dir = \"../site\"\ncreate-missing = false\n\n\
         [output.html]\n{link}no-section-label = true\nsmart-punctuation = false\ninput-404 = \"\"\n\n\
         [output.html.print]\nenable = false\n\n\
         [output.html.fold]\nenable = true\nlevel = 0\n\n\
         [output.html.search]\nlimit-results = 50\nuse-boolean-and = true\n"
    )
}

/// Returns the files in a directory, from the directory itself, without those that are no part of the site.
fn files(directory: &Path, within: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(directory.join(within));
    for entry in entries.with_context(|| format!("failed to list {}", directory.display()))? {
        let path = within.join(entry?.file_name());
        if LEFT_OUT.iter().any(|left_out| path == Path::new(left_out)) {
            continue;
        }
        if directory.join(&path).is_dir() {
            found.extend(files(directory, &path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn is_page(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
}

/// Returns the path of a file in the site's sources: a directory's README is its index.
fn published(file: &Path) -> PathBuf {
    match file.file_name() {
        Some(name) if name == "README.md" => file.with_file_name("index.md"),
        _ => file.to_owned(),
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}

/// Removes a directory, if it exists.
fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_the_documentation_is_listed_for_an_audience() {
        let docs = oz_testkit::repository().join(DOCS);
        let files = files(&docs, Path::new("")).unwrap();
        let pages: Vec<&PathBuf> = files.iter().filter(|file| is_page(file)).collect();
        let audiences = read(&docs.join("README.md")).unwrap();
        let title = |page: &Path| summary::title(&read(&docs.join(page))?);
        let text = summary::text(&audiences, &pages, title).unwrap();
        for page in pages {
            let link = format!("]({})", published(page).display());
            assert_eq!(text.matches(&link).count(), 1, "{}", page.display());
        }
    }
}
