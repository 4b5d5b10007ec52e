//! Why something did not happen.

use serde::Serialize;

/// Why something did not happen. The class decides about retries; class and reason are static, so
/// that metrics and events have a bounded vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What a retry could change.
    pub class: FailureClass,
    /// Reason in CamelCase for conditions, events and metric labels, such as `NameConflict`.
    pub reason: &'static str,
    /// What happened and what to do next, for people.
    pub message: String,
}

impl Failure {
    /// The reason of a command that cannot be rendered for this pod.
    pub const COMMAND_INVALID: &'static str = "AccessCommandInvalid";
    /// The reason of a foreign object in the place of one of ours.
    pub const NAME_CONFLICT: &'static str = "NameConflict";

    /// A failure that may be over at the next try.
    pub fn transient(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            class: FailureClass::Transient,
            reason,
            message: message.into(),
        }
    }

    /// A failure that lasts until somebody changes the input.
    pub fn invalid(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            class: FailureClass::Invalid,
            reason,
            message: message.into(),
        }
    }

    /// A failure because somebody else's object stands in the way.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self {
            class: FailureClass::Conflict,
            reason: Self::NAME_CONFLICT,
            message: message.into(),
        }
    }
}

/// What a retry could change.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::IntoStaticStr, strum::Display,
)]
pub enum FailureClass {
    /// May pass: tried again with backoff, never later than the plan's wake.
    Transient,
    /// Lasts until the object, or what it refers to, changes.
    Invalid,
    /// An object that is not ours holds the name: tried again slowly.
    Conflict,
}
