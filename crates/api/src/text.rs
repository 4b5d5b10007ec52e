//! Characters with which a text looks like another one.

/// Checks whether a character changes the order of other characters, or is invisible.
#[must_use]
pub fn reorders(next: char) -> bool {
    matches!(
        next,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    )
}
