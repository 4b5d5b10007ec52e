//! Text from other users, without control characters for a terminal.

/// Returns text from other users as lines without control characters for a terminal.
#[must_use]
pub fn lines(text: &str) -> String {
    let harmless = |letter: char| match letter {
        '\n' | '\t' => letter,
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    };
    text.chars().map(harmless).collect()
}

/// Returns such text as one line.
#[must_use]
pub fn line(text: &str) -> String {
    lines(&text.replace(['\n', '\t', '\r'], " "))
}
