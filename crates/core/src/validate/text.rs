//! Texts that people write and others decide by: a reason, a finding, an expression.

use super::Found;
use crate::connect::policy::bounded;

/// The longest `reason`, in bytes.
pub const MAX_REASON: usize = 1024;

/// A reason is read in terminals and logs.
pub(super) fn check_reason(reason: &str, found: &mut Found) {
    if reason.len() > MAX_REASON {
        found.add("spec.reason", format!("must be at most {MAX_REASON} bytes"));
    }
    if reason
        .chars()
        .any(|next| next.is_control() && next != '\n' && next != '\t')
    {
        found.add("spec.reason", "must not contain control characters");
    }
}

/// Notes what is wrong with a text that others decide by: it says something, and nothing in it makes it look
/// like something else.
pub(super) fn plain(field: &str, text: &str, found: &mut Found) {
    if text.trim().is_empty() {
        found.add(field, "must say something");
    }
    if text.len() > MAX_REASON {
        found.add(field, format!("must be at most {MAX_REASON} bytes"));
    }
    let hidden = |next: char| next.is_control() && next != '\n' && next != '\t';
    if text.chars().any(hidden) {
        found.add(field, "must not contain control characters");
    }
    if text.chars().any(reorders) {
        let message = "must not contain marks that change the direction of text";
        found.add(field, message);
    }
}

/// Whether a character makes others appear in another order, or is not seen at all.
pub(crate) fn reorders(next: char) -> bool {
    matches!(
        next,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    )
}

/// Checks an expression of CEL before anything parses it.
pub(super) fn expression(field: &str, text: &str, found: &mut Found) {
    if text.trim().is_empty() {
        found.add(field, "must not be empty");
    } else if let Err(excess) = bounded(text) {
        found.add(field, excess.to_string());
    } else if text.chars().any(is_deceptive) {
        found.add(
            field,
            "must not contain characters that are not seen, or that turn the direction of text",
        );
    }
}

/// Whether a letter lets a text look like another one than it is.
pub(super) fn is_deceptive(letter: char) -> bool {
    reorders(letter) || letter.is_control() && letter != '\n' && letter != '\t'
}
