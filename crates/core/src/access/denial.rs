//! Denials that are final, and the lists of names in their messages.

use oz_api::IdentityError;

use crate::controller::Failure;

/// A final denial: the same requester with the same request gets the same decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Denial {
    /// Reason in CamelCase for conditions, events, audit records and metrics.
    pub reason: &'static str,
    /// The cause and the next step.
    pub message: String,
}

impl Denial {
    /// Creates a denial.
    #[must_use]
    pub fn new(reason: &'static str, message: String) -> Self {
        Self { reason, message }
    }
}

impl From<IdentityError> for Denial {
    fn from(error: IdentityError) -> Self {
        Self::new("NotStored", error.to_string())
    }
}

impl From<Failure> for Denial {
    fn from(failure: Failure) -> Self {
        Self::new(failure.reason, failure.message)
    }
}

/// Returns users, then groups, as messages name them.
pub(super) fn format_subjects<'a>(
    users: impl IntoIterator<Item = &'a String>,
    groups: &'a [String],
) -> Vec<String> {
    let groups = groups.iter().map(|group| format!("group {group}"));
    users.into_iter().cloned().chain(groups).collect()
}

/// Lists at most five names: messages are part of conditions, audit records and events.
#[must_use]
pub fn list(names: &[String]) -> String {
    const NAMED: usize = 5;
    match names.len() {
        0 => "none".to_owned(),
        count if count <= NAMED => names.join(", "),
        count => format!("{} and {} more", names[..NAMED].join(", "), count - NAMED),
    }
}
