//! Characters that make a text look like another one.

/// Whether a character makes others appear in another order, or is not seen at all.
#[must_use]
pub fn reorders(next: char) -> bool {
    matches!(
        next,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    )
}
