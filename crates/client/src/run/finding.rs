//! The dependencies of a run, as a command shows them.

/// A dependency of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// True if it is met; `None` if that is not known.
    pub holds: Option<bool>,
    /// The subject, in one word.
    pub about: String,
    /// The state.
    pub message: String,
}

/// Creates a finding.
pub(super) fn finding(
    holds: impl Into<Option<bool>>,
    about: &str,
    message: impl Into<String>,
) -> Finding {
    Finding {
        holds: holds.into(),
        about: about.to_owned(),
        message: message.into(),
    }
}
