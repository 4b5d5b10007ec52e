//! Failures of a controller.

use oz_api::IdentityError;
use serde::Serialize;

/// The cause of a failure. The class decides about retries; class and reason are static, so that metrics and
/// events have a bounded vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The class, which determines the effect of a retry.
    pub class: FailureClass,
    /// Reason in CamelCase for conditions, events and metric labels, such as `NameConflict`.
    pub reason: &'static str,
    /// The failure and the next step, for users.
    pub message: String,
}

/// The failure of a pass over an object without an identity, which no retry resolves.
impl From<IdentityError> for Failure {
    fn from(error: IdentityError) -> Self {
        Self::invalid("NotStored", error.to_string())
    }
}

impl Failure {
    /// The reason of a command that cannot be rendered for this pod.
    pub const COMMAND_INVALID: &'static str = "AccessCommandInvalid";
    /// The reason of a foreign object in the place of one of ours.
    pub const NAME_CONFLICT: &'static str = "NameConflict";

    /// Creates a failure that a retry may resolve.
    pub fn transient(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            class: FailureClass::Transient,
            reason,
            message: message.into(),
        }
    }

    /// Creates a failure that lasts until a user changes the input.
    pub fn invalid(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            class: FailureClass::Invalid,
            reason,
            message: message.into(),
        }
    }

    /// Creates a failure because another owner's object has the name.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self {
            class: FailureClass::Conflict,
            reason: Self::NAME_CONFLICT,
            message: message.into(),
        }
    }
}

/// The class of a failure by the effect of a retry.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::IntoStaticStr, strum::Display,
)]
pub enum FailureClass {
    /// May pass: retried with backoff, never later than the plan's wake.
    Transient,
    /// Lasts until the object, or an object to which it refers, changes.
    Invalid,
    /// A foreign object has the name: retried slowly.
    Conflict,
}
