//! Counts of code in which a missing value becomes an empty one, or in which an error is a bare text. The limits
//! may only fall. Two missing names or UIDs that become `""` are equal: a comparison of them lets through what it
//! should refuse.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test should stop where it failed, and show what it counted"
)]

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// The permitted number of values that become empty when they are missing.
const EMPTY: usize = 222;
/// The permitted number of errors that are bare texts.
const TEXTS: usize = 29;
/// The permitted number of files of ozctl that send requests to the API server themselves.
const READERS: usize = 7;
/// The permitted number of names that are empty when they are missing.
const ANY_NAMES: usize = 75;
/// Crates that only tests depend on.
const FOR_TESTS: [&str; 2] = ["testkit", "testkit-s3"];

/// Expressions that replace a missing value by an empty one, as tokens with a blank between two.
const DEFAULTS: [&str; 14] = [
    "unwrap_or_default ( )",
    ":: unwrap_or_default",
    "unwrap_or ( \"\" )",
    "unwrap_or ( Default :: default ( ) )",
    "unwrap_or ( String :: new ( ) )",
    "unwrap_or_else ( Default :: default )",
    "unwrap_or_else ( String :: new )",
    "unwrap_or_else ( Vec :: new )",
    "unwrap_or_else ( | | String :: new ( ) )",
    "map_or ( \"\" ,",
    "map_or ( String :: new ( ) ,",
    "map_or_else ( String :: new ,",
    "map_or_else ( Default :: default ,",
    "map_or_else ( | | String :: new ( ) ,",
];
/// The name of an object, its generated name, or an empty text.
const ANY_NAME: &str = "name_any ( )";
/// Types of errors that are bare texts.
const BARE: [&str; 3] = ["String", "& ' static str", "Cow < ' static , str >"];
/// Definitions of errors that are bare texts.
const BARE_DEFINITIONS: [&str; 2] = ["type Err = String", "type Error = String"];
/// The message of an error that may be a text with a type around it.
const WRAPPER: &str = "# [ error ( \"{0}\" ) ]";
/// Requests to the API server, by the client of kube or by that of `oz-client`.
const REQUESTS: [&str; 4] = ["Api <", "Api ::", ". api ::", ". api_in ::"];
/// Fields of an object's identity.
const IDENTITY: [&str; 6] = [
    "name",
    "uid",
    "namespace",
    "creation_timestamp",
    "created",
    "generate_name",
];

/// The permitted places in which such a field becomes empty, each with the field.
const KNOWN: [(&str, &str); 9] = [
    // In messages: a review under `generateName`, and composites.
    ("admission/src/review.rs", "name"),
    ("composites/src/timeline.rs", "name"),
    ("ozctl/src/verbs/explain/show_composite.rs", "name"),
    // The UID of a user, which authenticators need not set.
    ("client/src/choose.rs", "uid"),
    ("gating/src/front_proxy.rs", "uid"),
    // In stamps and digests, a cluster-scoped object has an empty namespace.
    ("client/src/evidence/gather.rs", "namespace"),
    ("client/src/explain/unsaved.rs", "namespace"),
    // Parameters with this name, not fields of objects.
    ("composites/src/desired.rs", "name"),
    ("core/src/connect/image.rs", "name"),
];

/// Appends the tokens outside of tests, with a blank between two.
fn flatten(tokens: TokenStream, text: &mut String) {
    let mut is_test = false;
    let mut after_hash = false;
    let mut after_joint = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("( ", ") "),
                    Delimiter::Brace => ("{ ", "} "),
                    Delimiter::Bracket => ("[ ", "] "),
                    Delimiter::None => ("", ""),
                };
                if after_hash && group.to_string().replace(' ', "") == "[cfg(test)]" {
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
                let pair = (text.trim_end().chars().last(), punct.as_char());
                if after_joint && matches!(pair, (Some(':'), ':') | (Some('-' | '='), '>')) {
                    text.truncate(text.trim_end().len());
                }
                after_joint = punct.spacing() == Spacing::Joint;
                text.push(punct.as_char());
                text.push(' ');
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
    let results = text.match_indices("Result ").filter_map(|(at, name)| {
        let rest = text[at + name.len()..].trim_start_matches(":: ");
        rest.strip_prefix("< ")
    });
    let results = results.filter(|rest| {
        let mut depth = 1;
        let mut last = 0;
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
static CRATES: LazyLock<BTreeMap<String, Vec<(PathBuf, String)>>> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut crates = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if FOR_TESTS.contains(&name.as_str()) {
            continue;
        }
        let mut files = Vec::new();
        let skips = |name: &str| ["tests", "testing"].contains(&name) || name.ends_with("tests.rs");
        sources::find(&path.join("src"), &skips, &mut files);
        let texts = files.into_iter().map(|file| {
            let source = fs::read_to_string(&file).unwrap();
            let mut text = String::new();
            flatten(source.parse().unwrap(), &mut text);
            (file, text)
        });
        crates.insert(name, texts.collect());
    }
    crates
});

/// Prints the number of what `count` finds in each crate, and returns the sum.
fn sum(what: &str, count: impl Fn(&str) -> usize) -> usize {
    let mut sum = 0;
    for (name, files) in &*CRATES {
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
fn names_that_may_be_empty_stay_below_limit() {
    let sum = sum("names that may be empty", |text| matches(text, &[ANY_NAME]));
    assert!(sum <= ANY_NAMES, "{sum} of at most {ANY_NAMES}");
}

#[test]
fn no_missing_part_of_identity_becomes_empty() {
    let mut found = BTreeSet::new();
    let mut known: BTreeSet<_> = KNOWN.into_iter().collect();
    for (file, text) in CRATES.values().flatten() {
        for (at, _) in DEFAULTS.iter().flat_map(|it| text.match_indices(it)) {
            let chain = chain(&text[..at]);
            for field in chain.into_iter().filter(|word| IDENTITY.contains(word)) {
                let is_known = |(of, name): &&(&str, &str)| file.ends_with(of) && *name == field;
                match KNOWN.iter().find(is_known) {
                    Some(place) => _ = known.remove(place),
                    None => _ = found.insert((file.clone(), field.to_owned())),
                }
            }
        }
    }
    assert_eq!(found, BTreeSet::new());
    assert_eq!(known, BTreeSet::new(), "these places are gone");
}

#[test]
fn ozctl_reads_the_cluster_through_the_client() {
    let reading = CRATES["ozctl"]
        .iter()
        .filter(|(_, text)| REQUESTS.iter().any(|it| text.contains(it)));
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
        fn c() { f(g.uid, h.len().unwrap_or_default()); i.map(Option::unwrap_or_default) }
        #[error("{0}")]
        pub struct E(String);
        fn d() -> Result<BTreeMap<String, String>, Vec<String>> { Result::<(), String>::Ok(()) }
        fn e(one: &str) -> Result<&str, &'static str> { j.unwrap_or_else(|| String::new()) }
        fn f() -> Result<fn() -> u8, Cow<'static, str>> { k.map_or_else(String::new, l) }
    "#;
    let mut text = String::new();
    flatten(source.parse().unwrap(), &mut text);
    assert_eq!(matches(&text, &DEFAULTS), 6, "{text}");
    assert_eq!(bare_errors(&text), 5, "{text}");
    let chains = text.match_indices("unwrap_or_default ( )");
    let chains: Vec<Vec<&str>> = chains.map(|(at, _)| chain(&text[..at])).collect();
    let named = |chain: &Vec<&str>| chain.iter().any(|word| IDENTITY.contains(word));
    assert_eq!(chains.iter().map(named).collect::<Vec<_>>(), [true, false]);
}
