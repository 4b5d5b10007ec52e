//! The licence texts in the directory of a package, as its author published it.

use std::path::Path;

use anyhow::{Context as _, Result};

/// First letters of the names of files with licences, in lower case.
const LICENCES: [&str; 4] = ["license", "licence", "copying", "unlicense"];
/// First letters of the names of files with notices that a licence may require to keep.
const NOTICES: [&str; 2] = ["notice", "copyright"];
/// Extensions of sources and data, which are no texts for readers.
const OTHER: [&str; 11] = [
    "rs", "c", "h", "py", "sh", "json", "toml", "yml", "yaml", "html", "pl",
];
/// Directories with content that is not linked.
const SKIPPED: [&str; 8] = [
    "tests", "test", "benches", "examples", "fuzz", "docs", "target", ".git",
];
/// The maximum depth of directories with C libraries in a package.
const DEPTH: usize = 4;

/// A text of a component.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// Path from the directory of the package.
    pub(super) name: String,
    /// Lines with line feeds, without blanks at their ends: equal texts are equal.
    pub(super) content: String,
}

impl Text {
    /// Creates a text with normalised lines.
    pub(super) fn new(name: &str, content: &str) -> Self {
        let mut lines: Vec<&str> = content.lines().map(str::trim_end).collect();
        while lines.last().is_some_and(|line| line.is_empty()) {
            lines.pop();
        }
        let first = lines.iter().position(|line| !line.is_empty());
        let kept = lines.get(first.unwrap_or_default()..).unwrap_or(&lines);
        Self {
            name: name.to_owned(),
            content: kept.join("\n") + "\n",
        }
    }

    /// Checks whether it is a licence of the package itself, and not only a notice, or the licence of a library in it.
    pub(super) fn is_licence(&self) -> bool {
        !self.name.contains('/') && !begins_with(&self.name, &NOTICES)
    }
}

/// Reads the texts below `directory`, with the file that the manifest names, by path.
pub(super) fn read(directory: &Path, license_file: Option<&Path>) -> Result<Vec<Text>> {
    let mut texts = Vec::new();
    collect(directory, "", DEPTH, &mut texts)?;
    if let Some(file) = license_file {
        let name = file.display().to_string();
        if !texts.iter().any(|text| text.name == name) {
            let file_name = file.file_name().context("a licence file without a name")?;
            let content = text_of(&directory.join(file))?;
            texts.push(Text::new(&file_name.to_string_lossy(), &content));
        }
    }
    texts.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(texts)
}

fn collect(directory: &Path, prefix: &str, depth: usize, texts: &mut Vec<Text>) -> Result<()> {
    let failed = || format!("failed to list {}", directory.display());
    for entry in std::fs::read_dir(directory).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let kind = entry.file_type().with_context(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if kind.is_dir() && depth > 0 && !SKIPPED.contains(&name.as_str()) {
            collect(&entry.path(), &format!("{path}/"), depth - 1, texts)?;
        } else if kind.is_file() && is_text(&name, prefix.is_empty()) {
            texts.push(Text::new(&path, &text_of(&entry.path())?));
        }
    }
    Ok(())
}

fn text_of(path: &Path) -> Result<String> {
    let bytes =
        std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_text(name: &str, of_package: bool) -> bool {
    let extension = Path::new(name).extension().map(|it| it.to_string_lossy());
    let is_other = extension.is_some_and(|it| OTHER.contains(&it.to_lowercase().as_str()));
    // A C library under a choice of licences has the others in COPYING: zstd the GPL, which the crate does not use.
    let is_choice = !of_package && begins_with(name, &["copying"]);
    !is_other && !is_choice && (begins_with(name, &LICENCES) || begins_with(name, &NOTICES))
}

fn begins_with(name: &str, beginnings: &[&str]) -> bool {
    let name = name.to_lowercase();
    beginnings.iter().any(|it| name.starts_with(it))
}
