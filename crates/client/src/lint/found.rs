//! The findings of the checks of one object.

use std::fmt::Display;

use oz_core::validate::Violation;

/// The rule, the field and the message of each finding.
pub(super) type Found = Vec<(&'static str, String, String)>;

/// Adds violations to the findings.
pub(super) fn add(violations: Vec<Violation>, found: &mut Found) {
    let violations = violations.into_iter();
    found.extend(violations.map(|one| ("rule", one.field, one.message)));
}

/// Adds the violations of an object, or the reason why it cannot be read at all, which is a finding about the field
/// `whole`.
pub(super) fn add_checked(
    checked: Result<Vec<Violation>, impl Display>,
    whole: &str,
    found: &mut Found,
) {
    match checked {
        Err(error) => found.push(("schema", whole.to_owned(), error.to_string())),
        Ok(violations) => add(violations, found),
    }
}
