//! A condition that was determined, before a status contains it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::conditions::{self, reason};

/// A condition with its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Type, one of the constants in [`conditions`].
    pub type_: &'static str,
    /// The result: true if the condition holds.
    pub holds: bool,
    /// Reason in CamelCase.
    pub reason: &'static str,
    /// Message for users.
    pub message: String,
}

impl Fact {
    /// Creates a condition that holds.
    pub fn holds(type_: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_,
            holds: true,
            reason: reason::SUCCESS,
            message: message.into(),
        }
    }

    /// Creates a condition that does not hold.
    pub fn fails(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_,
            holds: false,
            reason,
            message: message.into(),
        }
    }

    /// Sets the condition.
    pub(crate) fn set(
        self,
        conditions: &mut Vec<Condition>,
        generation: Option<i64>,
        now: Timestamp,
    ) {
        let (type_, reason) = (self.type_, self.reason);
        conditions::set(
            conditions,
            type_,
            self.holds,
            reason,
            self.message,
            generation,
            now,
        );
    }
}
