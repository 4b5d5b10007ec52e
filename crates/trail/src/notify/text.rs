//! User-provided text in a harmless form: without mentions, without links, and in one direction of writing.

use oz_api::text::reorders;

/// The maximum length of a text in a message, in characters.
const LONGEST: usize = 300;

/// Returns one line of limited length, without control characters and without characters that reverse the direction of
/// text.
pub(super) fn plain(text: &str) -> String {
    let harmless = |letter: char| match letter {
        letter if reorders(letter) => None,
        letter if letter.is_control() || letter.is_whitespace() => Some(' '),
        letter => Some(letter),
    };
    let mut letters = text.chars().filter_map(harmless);
    let mut plain: String = letters.by_ref().take(LONGEST).collect();
    if letters.next().is_some() {
        plain.push('…');
    }
    plain
}

/// Splits a name such as `ApprovalRequested` into words.
pub(super) fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
            words.extend(letter.to_lowercase());
        } else {
            words.push(letter);
        }
    }
    words
}

/// Escapes the characters that have a meaning in the path of a URL.
pub(super) fn escaped_for_url(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                escaped.push(byte.into())
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

/// Quotes a name as one word of a shell.
pub(super) fn quoted(name: &str) -> String {
    let name = plain(name);
    let simple = |it: char| it.is_ascii_alphanumeric() || "-._".contains(it);
    if !name.is_empty() && name.chars().all(simple) {
        return name;
    }
    format!("'{}'", name.replace('\'', r"'\''"))
}
