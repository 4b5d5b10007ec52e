//! Texts that people write and others decide by: a reason, a finding, an expression.

use oz_api::text::reorders;

use super::{Found, Violation};
use crate::connect::policy::bounded;

/// The longest `reason`, in bytes.
pub const MAX_REASON: usize = 1024;

/// A reason is read in terminals and logs.
pub(super) fn check_reason(reason: &str, found: &mut Found) {
    found.0.extend(readable("spec.reason", reason));
}

/// What is wrong with a text of somebody's that is read in terminals and logs.
#[must_use]
pub fn readable(field: &str, text: &str) -> Vec<Violation> {
    let mut wrong = Vec::new();
    if text.len() > MAX_REASON {
        let message = format!("must be at most {MAX_REASON} bytes");
        wrong.push(Violation::of(field, message));
    }
    if text.chars().any(is_control) {
        let message = "must not contain control characters";
        wrong.push(Violation::of(field, message));
    }
    wrong
}

/// Whether a character does something to a terminal other than to begin a line or a column.
fn is_control(next: char) -> bool {
    next.is_control() && next != '\n' && next != '\t'
}

/// Notes what is wrong with a text that others decide by: it says something, and nothing in it makes it look
/// like something else.
pub(super) fn plain(field: &str, text: &str, found: &mut Found) {
    if text.trim().is_empty() {
        found.add(field, "must say something");
    }
    undisguised(field, text, found);
}

/// Notes what is wrong with a text of which nothing may look like something else.
pub(super) fn undisguised(field: &str, text: &str, found: &mut Found) {
    found.0.extend(readable(field, text));
    if text.chars().any(reorders) {
        let message = "must not contain marks that change the direction of text";
        found.add(field, message);
    }
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
    reorders(letter) || is_control(letter)
}

/// Whether nobody sees a letter, or it turns the direction of others: whatever is no letter to the eye.
pub(super) fn is_unseen(letter: char) -> bool {
    reorders(letter)
        || matches!(
            letter,
            '\u{ad}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{180b}'..='\u{180f}'
                | '\u{206a}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{ffa0}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}
