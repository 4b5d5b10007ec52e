//! `cargo xtask words`: counts, in the sources and documents, of words and forms that docs/STYLE.md replaces by the
//! field's own. It fails above the limits, which may only fall.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;

use anyhow::{Context as _, Result};
use clap::Args;
use regex::Regex;
use xtask::screen::{Screen, columns};

/// Words for which the field has a term, and clauses without a subject.
static MARKED: LazyLock<Regex> = LazyLock::new(|| {
    // `\s` for a blank, or this list would count itself.
    let words = [
        r"somebody|nobody|everybody|whoever|whomever|whatever|whose|whom",
        r"besides|beside|meanwhile|in\splace\sof|told|tells|tell",
        r"comes\sto|came\sof|come\sof|becomes\sof|looked\sat|looks\sat|looks\safter|looked\safter",
        r"of\sits\sown|of\sone's\sown|goes\son|by\sitself|at\shand|stands\sbeside|to\sthe\sletter",
        r"makes\sno\ssense|to\sbe\shad|lets\sin|let\sin|is\shad|has\scome|had\scome|mends?|mended|nothing\sbut",
        r"what\s(?:only|is|was|waits|ends|goes|comes|may|must|they|somebody|others)",
    ];
    regex(&format!(r"(?i)\b(?:{})\b", words.join("|")))
});
/// A word.
static WORD: LazyLock<Regex> = LazyLock::new(|| regex(r"[A-Za-z][A-Za-z'-]+"));
/// A string literal.
static LITERAL: LazyLock<Regex> = LazyLock::new(|| regex(r#""((?:[^"\\]|\\.)*)""#));
/// Inline code.
static CODE: LazyLock<Regex> = LazyLock::new(|| regex("`[^`]*`"));
/// A test.
static TEST: LazyLock<Regex> = LazyLock::new(|| regex(r"#\[(?:tokio::)?test"));
/// A test with a name that begins with a pronoun.
static PRONOUN: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"fn\s(?:what|who|whoever|whose|one|nobody|somebody|everybody|those|that|where|it)_\w+")
});
/// First words of doc comments that have neither a noun nor a verb there.
const OPENERS: [&str; 25] = [
    "Of", "In", "With", "For", "By", "To", "From", "As", "At", "Until", "Its", "What", "Who",
    "Which", "How", "Why", "When", "Where", "That", "One", "Nobody", "Somebody", "Those",
    "Whoever", "Whose",
];
/// Directories without prose of this repository.
const SKIPPED: [&str; 5] = [".git", "target", "node_modules", "dist", "snapshots"];
/// The length from which a literal with a blank counts as prose, in bytes.
const PROSE: usize = 12;

/// Compiles a pattern of this file.
fn regex(pattern: &str) -> Regex {
    #[allow(clippy::expect_used, reason = "the tests below compile each pattern")]
    Regex::new(pattern).expect("a valid pattern")
}

/// Options of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// Print the lines with the most marked words as well.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    worst: usize,
}

/// The kinds of prose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prose {
    Strings,
    DocComments,
    Markdown,
}

/// A piece of prose.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    prose: Prose,
    text: String,
    /// Whether it is the first line of an item's doc comment.
    opens: bool,
}

/// A part of a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    part: usize,
    whole: usize,
}

impl Share {
    fn add(&mut self, part: usize, whole: usize) {
        self.part += part;
        self.whole += whole;
    }

    /// Checks whether the part exceeds `limit` in each `of`.
    const fn exceeds(self, limit: usize, of: usize) -> bool {
        // In tenths, as it is printed.
        self.part * of * 10 > limit * self.whole
    }

    /// Formats the part in each `of`, with one decimal.
    fn per(self, of: usize) -> String {
        let tenths = (self.part * of * 10 + self.whole / 2) / self.whole.max(1);
        format!("{}.{}", tenths / 10, tenths % 10)
    }
}

/// The counts of the tree.
#[derive(Debug, Default)]
struct Counts {
    strings: Share,
    doc_comments: Share,
    markdown: Share,
    openers: Share,
    test_names: Share,
    lines: Vec<(usize, PathBuf, String)>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = oz_testkit::repository().canonicalize()?;
    let mut counts = Counts::default();
    visit(&root, &root, &mut counts)?;
    // The limits, in tenths: of marked words in 1,000, of openers and test names in 100.
    let measures = [
        ("strings", counts.strings, 1000, 10),
        ("doc comments", counts.doc_comments, 1000, 2),
        ("Markdown", counts.markdown, 1000, 2),
        ("openers of doc comments", counts.openers, 100, 5),
        ("test names led by a pronoun", counts.test_names, 100, 6),
    ];
    let mut rows = vec![
        ["MEASURE", "COUNT", "OF", "DENSITY", "LIMIT"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut is_over = false;
    for (name, share, of, limit) in measures {
        let exceeds = share.exceeds(limit, of);
        is_over |= exceeds;
        rows.push(vec![
            name.to_owned(),
            share.part.to_string(),
            share.whole.to_string(),
            format!("{} in {of}", share.per(of)),
            format!(
                "{}.{}{}",
                limit / 10,
                limit % 10,
                if exceeds { " EXCEEDED" } else { "" }
            ),
        ]);
    }
    let screen = Screen::stdout();
    for line in columns(&rows) {
        screen.line(&line)?;
    }
    counts.lines.sort_by_key(|(marked, ..)| Reverse(*marked));
    for (marked, path, text) in counts.lines.iter().take(options.worst) {
        screen.line(&format!("{marked}  {}: {text}", path.display()))?;
    }
    if is_over {
        screen.line("\nThe words of the change are not those of docs/STYLE.md: `cargo xtask words --worst 50` shows lines.")?;
    }
    Ok(ExitCode::from(u8::from(is_over)))
}

/// Counts in all files below a directory.
fn visit(root: &Path, directory: &Path, counts: &mut Counts) -> Result<()> {
    let failed = || format!("failed to list {}", directory.display());
    for entry in fs::read_dir(directory).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name else { continue };
        if path.is_dir() {
            if !SKIPPED.contains(&name) {
                visit(root, &path, counts)?;
            }
        } else if name.ends_with(".rs") || name.ends_with(".md") {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("failed to read {}", path.display()))?;
            let path = path.strip_prefix(root).unwrap_or(&path);
            count(path, &text, counts);
        }
    }
    Ok(())
}

/// Counts in a file.
fn count(path: &Path, text: &str, counts: &mut Counts) {
    for piece in pieces(path, text) {
        let words = WORD.find_iter(&piece.text).count();
        let marked = MARKED.find_iter(&piece.text).count();
        let share = match piece.prose {
            Prose::Strings => &mut counts.strings,
            Prose::DocComments => &mut counts.doc_comments,
            Prose::Markdown => &mut counts.markdown,
        };
        share.add(marked, words);
        if marked > 0 {
            let line = (marked, path.to_owned(), piece.text.trim().to_owned());
            counts.lines.push(line);
        }
        if piece.opens
            && let Some(first) = WORD.find(&piece.text)
        {
            let is_opener = OPENERS.contains(&first.as_str());
            counts.openers.add(usize::from(is_opener), 1);
        }
    }
    if path.extension().is_some_and(|it| it == "rs") {
        let tests = TEST.find_iter(text).count();
        let pronouns = PRONOUN.find_iter(text).count();
        counts.test_names.add(pronouns, tests);
    }
}

/// Returns the prose of a file, line by line.
fn pieces(path: &Path, text: &str) -> Vec<Piece> {
    match path.extension().is_some_and(|it| it == "md") {
        true => markdown(text),
        false => rust(path, text),
    }
}

fn markdown(text: &str) -> Vec<Piece> {
    let mut is_fenced = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced
    });
    let prose = prose.map(|line| Piece {
        prose: Prose::Markdown,
        text: CODE.replace_all(line, "").into_owned(),
        opens: false,
    });
    prose.collect()
}

fn rust(path: &Path, text: &str) -> Vec<Piece> {
    let name = path.to_string_lossy();
    let ends = ["tests.rs", "/testing.rs"];
    let mut is_test = name.contains("/tests/")
        || name.starts_with("e2e/")
        || ends.iter().any(|end| name.ends_with(end));
    let mut in_doc = false;
    let mut pieces = Vec::new();
    for line in text.lines().map(str::trim) {
        is_test |= line.starts_with("#[cfg(test)]");
        let doc = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        if let Some(doc) = doc {
            pieces.push(Piece {
                prose: Prose::DocComments,
                text: CODE.replace_all(doc, "").into_owned(),
                opens: !in_doc && line.starts_with("///"),
            });
            in_doc = true;
            continue;
        }
        in_doc = false;
        if is_test || line.starts_with("//") {
            continue;
        }
        let literals = LITERAL.captures_iter(line).filter_map(|it| it.get(1));
        let literals = literals.map(|literal| literal.as_str());
        let literals = literals.filter(|it| it.len() >= PROSE && it.contains(' '));
        pieces.extend(literals.map(|literal| Piece {
            prose: Prose::Strings,
            text: literal.to_owned(),
            opens: false,
        }));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(path: &str, text: &str) -> Counts {
        let mut counts = Counts::default();
        count(Path::new(path), text, &mut counts);
        counts
    }

    #[test]
    fn strings_outside_of_tests_are_counted() {
        let text = "let a = \"somebody waits here\"; let b = \"nobody\";\n\
                    #[cfg(test)]\nlet c = \"somebody else entirely\";";
        let counts = counted("crates/a/src/b.rs", text);
        assert_eq!(counts.strings, Share { part: 1, whole: 3 });
        let counts = counted("crates/a/tests/b.rs", text);
        assert_eq!(counts.strings, Share::default());
    }

    #[test]
    fn doc_comments_are_counted_without_code_and_once_for_opening() {
        let text =
            "/// Of a request, `somebody`, told\n/// What else.\nfn a() {}\n/// Returns it.\n";
        let counts = counted("crates/a/src/b.rs", text);
        assert_eq!(counts.doc_comments, Share { part: 1, whole: 7 });
        assert_eq!(counts.openers, Share { part: 1, whole: 2 });
    }

    #[test]
    fn markdown_is_counted_outside_of_code_blocks() {
        let text = "Whoever reads\n```text\nwhoever\n```\nGoes on.";
        let counts = counted("docs/a.md", text);
        assert_eq!(counts.markdown, Share { part: 2, whole: 4 });
    }

    #[test]
    fn test_names_led_by_pronoun_are_counted() {
        let text = "#[test]\nfn what_is() {}\n#[tokio::test]\nasync fn request_is_denied() {}";
        let counts = counted("crates/a/src/b.rs", text);
        assert_eq!(counts.test_names, Share { part: 1, whole: 2 });
    }

    #[test]
    fn density_is_compared_in_tenths() {
        let share = Share {
            part: 15,
            whole: 1000,
        };
        assert_eq!(share.per(1000), "15.0");
        assert!(!share.exceeds(150, 1000));
        assert!(share.exceeds(149, 1000));
    }
}
