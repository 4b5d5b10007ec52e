//! Counts of code in which a missing value becomes an empty one, or in which an error is a bare text. The limits
//! may only fall. Two missing names or UIDs that become `""` are equal: a comparison of them lets through what it
//! should refuse.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test should stop where it failed, and show what it counted"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The permitted number of values that become empty when they are missing.
const EMPTY: usize = 250;
/// The permitted number of errors that are bare texts.
const TEXTS: usize = 30;
/// The permitted number of files of ozctl that send requests to the API server themselves.
const READERS: usize = 4;
/// Crates that only tests depend on.
const FOR_TESTS: [&str; 2] = ["testkit", "testkit-s3"];

/// Expressions that replace a missing value by an empty one, as tokens with a blank between two.
const DEFAULTS: [&str; 13] = [
    "unwrap_or_default ( )",
    "unwrap_or ( \"\" )",
    "unwrap_or ( Default :: default ( ) )",
    "unwrap_or ( String :: new ( ) )",
    "unwrap_or_else ( Default :: default )",
    "unwrap_or_else ( String :: new )",
    "unwrap_or_else ( Vec :: new )",
    "unwrap_or_else ( || String :: new ( ) )",
    "map_or ( \"\" ,",
    "map_or ( String :: new ( ) ,",
    "map_or_else ( String :: new ,",
    "map_or_else ( Default :: default ,",
    "map_or_else ( || String :: new ( ) ,",
];
/// Types of errors that are bare texts.
const BARE: [&str; 3] = ["String", "& 'static str", "Cow < 'static , str >"];
/// Definitions of errors that are bare texts.
const BARE_DEFINITIONS: [&str; 2] = ["type Err = String", "type Error = String"];
/// The message of an error that may be a text with a type around it.
const WRAPPER: &str = "# [ error ( \"{0}\" ) ]";
/// Fields of an object's identity.
const IDENTITY: [&str; 6] = [
    "name",
    "uid",
    "namespace",
    "creation_timestamp",
    "created",
    "generate_name",
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" && name != "testing" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// Appends the tokens outside of tests, with a blank between two.
fn flatten(tokens: TokenStream, text: &mut String) {
    let mut is_test = false;
    let mut after_hash = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("( ", ") "),
                    Delimiter::Brace => ("{ ", "} "),
                    Delimiter::Bracket => ("[ ", "] "),
                    Delimiter::None => ("", ""),
                };
                let attribute = group.to_string().replace(' ', "");
                if after_hash && attribute == "[cfg(test)]" {
                    is_test = true;
                } else if is_test && group.delimiter() == Delimiter::Brace {
                    is_test = false;
                    continue;
                }
                text.push_str(open);
                flatten(group.stream(), text);
                text.push_str(close);
                after_hash = false;
            }
            TokenTree::Punct(punct) => {
                after_hash = punct.as_char() == '#';
                is_test &= punct.as_char() != ';';
                text.push(punct.as_char());
                if punct.spacing() == proc_macro2::Spacing::Alone {
                    text.push(' ');
                }
            }
            other => {
                after_hash = false;
                text.push_str(&other.to_string());
                text.push(' ');
            }
        }
    }
}

/// Returns the end of the expression before a position: its path of fields and calls, without arguments.
fn chain(before: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut chain = Vec::new();
    for word in before.split_whitespace().rev() {
        match word {
            ")" | "]" | "}" => depth += 1,
            "(" | "[" | "{" if depth > 0 => depth -= 1,
            "(" | "[" | "{" | "," | ";" | "=" | "=>" | "let" | "return" | "in" if depth == 0 => {
                break;
            }
            _ if depth == 0 => chain.push(word),
            _ => {}
        }
    }
    chain
}

/// Returns the number of patterns in a text.
fn matches(text: &str, patterns: &[&str]) -> usize {
    let each = patterns.iter().map(|it| text.matches(it).count());
    each.sum()
}

/// Returns the number of errors in a text that are bare texts.
fn bare_errors(text: &str) -> usize {
    let results = text.match_indices("Result < ").filter(|(at, start)| {
        let mut depth = 1;
        let mut last = 0;
        let rest = &text[at + start.len()..];
        let mut before = ' ';
        for (place, letter) in rest.char_indices() {
            match letter {
                '<' => depth += 1,
                '>' if before != '-' && before != '=' => depth -= 1,
                ',' if depth == 1 => last = place + 1,
                _ => {}
            }
            before = letter;
            if depth == 0 {
                return last > 0 && BARE.contains(&rest[last..place].trim());
            }
        }
        false
    });
    let wrappers = text.match_indices(WRAPPER).filter(|(at, _)| {
        let item = text[*at..].split([';', ',']).next();
        item.is_some_and(|item| item.ends_with("( String ) "))
    });
    results.count() + wrappers.count() + matches(text, &BARE_DEFINITIONS)
}

/// The text of each crate's source files, outside of tests.
fn crates() -> BTreeMap<String, Vec<(PathBuf, String)>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut crates = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if FOR_TESTS.contains(&name.as_str()) {
            continue;
        }
        let mut files = Vec::new();
        sources(&path.join("src"), &mut files);
        let texts = files.into_iter().map(|file| {
            let source = fs::read_to_string(&file).unwrap();
            let mut text = String::new();
            flatten(source.parse().unwrap(), &mut text);
            (file, text)
        });
        crates.insert(name, texts.collect());
    }
    crates
}

/// Prints the number of what `count` finds in each crate, and returns the sum.
fn sum(what: &str, count: impl Fn(&str) -> usize) -> usize {
    let mut sum = 0;
    for (name, files) in crates() {
        let found: usize = files.iter().map(|(_, text)| count(text)).sum();
        println!("{what} in {name}: {found}");
        sum += found;
    }
    println!("{what} in all: {sum}");
    sum
}

#[test]
fn missing_values_that_become_empty_stay_below_limit() {
    let sum = sum("missing values that become empty", |text| {
        matches(text, &DEFAULTS)
    });
    assert!(sum <= EMPTY, "{sum} of at most {EMPTY}");
}

#[test]
fn errors_that_are_bare_texts_stay_below_limit() {
    let sum = sum("errors that are bare texts", bare_errors);
    assert!(sum <= TEXTS, "{sum} of at most {TEXTS}");
}

#[test]
fn no_missing_part_of_identity_becomes_empty() {
    let mut found = Vec::new();
    for (file, text) in crates().into_values().flatten() {
        for pattern in DEFAULTS {
            for (at, _) in text.match_indices(pattern) {
                let chain = chain(&text[..at]);
                let field = chain.iter().find(|word| IDENTITY.contains(word));
                if let Some(field) = field {
                    let file = file.display();
                    found.push(format!("{file}: {field}: … {pattern}"));
                }
            }
        }
    }
    assert!(
        found.is_empty(),
        "{} parts of identities:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn ozctl_reads_the_cluster_through_the_client() {
    let crates = crates();
    let reading = crates["ozctl"]
        .iter()
        .filter(|(_, text)| ["Api <", "Api ::"].iter().any(|it| text.contains(it)));
    let reading: Vec<_> = reading.map(|(file, _)| file).collect();
    assert!(reading.len() <= READERS, "{reading:?}");
}

#[test]
fn counting_skips_tests_and_finds_each_form() {
    let source = r#"
        fn a() -> Result<u8, String> { x.name.as_deref().unwrap_or_default(); y.unwrap_or("") }
        #[cfg(test)]
        mod tests { fn b() { x.unwrap_or_default() } }
        #[cfg(test)]
        use a::b;
        fn c() { f(g.uid, h.len().unwrap_or_default()) }
        #[error("{0}")]
        pub struct E(String);
        fn d() -> Result<BTreeMap<String, String>, Vec<String>> { Result::<(), String>::Ok(()) }
    "#;
    let mut text = String::new();
    flatten(source.parse().unwrap(), &mut text);
    assert_eq!(matches(&text, &DEFAULTS), 3, "{text}");
    assert_eq!(bare_errors(&text), 3, "{text}");
    let chains = text.match_indices("unwrap_or_default ( )");
    let chains: Vec<Vec<&str>> = chains.map(|(at, _)| chain(&text[..at])).collect();
    let named = |chain: &Vec<&str>| chain.iter().any(|word| IDENTITY.contains(word));
    assert_eq!(chains.iter().map(named).collect::<Vec<_>>(), [true, false]);
}
