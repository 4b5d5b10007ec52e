//! Refusals that last, and how their messages name several.

/// A refusal that lasts: the same person asking the same again gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Denial {
    /// Reason in CamelCase for conditions, events, records and metrics.
    pub reason: &'static str,
    /// Why, and what to do next.
    pub message: String,
}

impl Denial {
    pub(crate) fn new(reason: &'static str, message: String) -> Self {
        Self { reason, message }
    }
}

/// Users, then groups, as messages name them.
pub(super) fn named<'a>(
    users: impl IntoIterator<Item = &'a String>,
    groups: &'a [String],
) -> Vec<String> {
    let groups = groups.iter().map(|group| format!("group {group}"));
    users.into_iter().cloned().chain(groups).collect()
}

/// Names at most a few: messages go into conditions, records and events.
#[must_use]
pub fn list(names: &[String]) -> String {
    const NAMED: usize = 5;
    match names.len() {
        0 => "none".to_owned(),
        count if count <= NAMED => names.join(", "),
        count => format!("{} and {} more", names[..NAMED].join(", "), count - NAMED),
    }
}
