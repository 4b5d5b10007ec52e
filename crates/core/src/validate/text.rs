//! Validation of texts that users write and on which other users base decisions: a reason, a finding, an
//! expression.

use oz_api::text::reorders;

use super::{Found, Violation};
use crate::connect::policy::bounded;

/// The maximum length of `reason`, in bytes.
pub const MAX_REASON: usize = 1024;

/// Checks a reason, which users read in terminals and logs.
pub(super) fn check_reason(reason: &str, found: &mut Found) {
    found.0.extend(readable("spec.reason", reason));
}

/// Returns the violations of a user's text that other users read in terminals and logs.
#[must_use]
pub fn readable(field: &str, text: &str) -> Vec<Violation> {
    let mut wrong = Vec::new();
    if text.len() > MAX_REASON {
        let message = format!("must be at most {MAX_REASON} bytes");
        wrong.push(Violation::new(field, message));
    }
    if text.chars().any(is_control) {
        let message = "must not contain control characters";
        wrong.push(Violation::new(field, message));
    }
    wrong
}

/// Checks whether a character has an effect on a terminal other than the beginning of a line or a column.
fn is_control(next: char) -> bool {
    next.is_control() && next != '\n' && next != '\t'
}

/// Adds the violations of a text on which users base decisions: it must not be empty, and no part of it may
/// look like something else.
pub(super) fn plain(field: &str, text: &str, found: &mut Found) {
    if text.trim().is_empty() {
        found.add(field, "must not be empty");
    }
    undisguised(field, text, found);
}

/// Returns the violations of the reason for an emergency, on which its reviewers base their finding.
#[must_use]
pub fn emergency_reason(field: &str, text: &str) -> Vec<Violation> {
    let mut found = Found::default();
    plain(field, text, &mut found);
    found.0
}

/// Adds the violations of a text of which no part may look like something else.
pub(super) fn undisguised(field: &str, text: &str, found: &mut Found) {
    found.0.extend(readable(field, text));
    if text.chars().any(reorders) {
        let message = "must not contain characters that change the direction of text";
        found.add(field, message);
    }
}

/// Checks a CEL expression before a parser reads it.
pub(super) fn expression(field: &str, text: &str, found: &mut Found) {
    if text.trim().is_empty() {
        found.add(field, "must not be empty");
    } else if let Err(excess) = bounded(text) {
        found.add(field, excess.to_string());
    } else if text.chars().any(is_deceptive) {
        found.add(
            field,
            "must not contain invisible characters, or characters that change the direction of \
                text",
        );
    }
}

/// Checks whether a letter can disguise a text as another text.
pub(super) fn is_deceptive(letter: char) -> bool {
    reorders(letter) || is_control(letter)
}

/// Checks whether a letter is invisible or changes the direction of other letters.
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
