//! A condition that was established, before it is in a status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::conditions::{self, reason};

/// One condition, established.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Type, one of the constants in [`conditions`].
    pub type_: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Reason in CamelCase.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Fact {
    /// A condition that holds.
    pub fn holds(type_: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_,
            holds: true,
            reason: reason::SUCCESS,
            message: message.into(),
        }
    }

    /// A condition that does not.
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
