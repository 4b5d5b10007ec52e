//! Validation of a spec, which any user may have written: it returns the parsed values, or all violations.
//! The webhook, the operator and the command line call the same functions, so that they always agree about
//! validity.

mod access_config;
mod access_pod;
mod approval;
mod attestation;
mod debug;
mod emergency;
mod lock;
mod metadata;
mod policy;
mod quantity;
mod request;
mod template;
mod text;
mod ticket;

use std::fmt::{self, Display};

use oz_api::duration::GoDuration;

pub use access_pod::{AccessPod, MAX_PATCH_DEPTH, MAX_PATCH_VALUE, PodSource};
pub use approval::{approval, joined_approval, unconditional_approval};
pub use attestation::rationale;
pub use emergency::{emergency_config, review};
pub use lock::{MAX_LOCK, When as LockWhen, lock};
pub use metadata::{MetadataBounds, REQUEST_METADATA, TEMPLATE_METADATA, metadata};
use oz_api::form as name;
pub use oz_api::form::{FormError, dns_label, dns_subdomain};
pub(crate) use policy::config as policy_rules;
pub use policy::{policy, unsatisfiable};
pub use quantity::{Amount, QuantityError};
pub use request::{MAX_GENERATE_NAME, MAX_REQUEST_NAME, ValidatedRequest, request};
pub use template::{
    MAX_TEMPLATE_SPEC, Target, ValidatedTemplate, exec_access_template, pod_access_template,
};
pub use text::{MAX_REASON, emergency_reason, readable};
pub use ticket::{matching, ticket, ticket_config};

/// A violation in an object, which must be corrected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, such as `spec.accessConfig.maxDuration`.
    pub field: String,
    /// The failure, or the requirement.
    pub message: String,
    /// The invalid value, if the violation concerns one value and not its absence.
    pub value: Option<String>,
    /// The violated rule, if a caller distinguishes it.
    pub rule: Rule,
}

/// A rule that a caller distinguishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Any other rule.
    #[default]
    Other,
    /// The default duration of a template is at most its maximum duration.
    DefaultWithinMax,
}

impl Violation {
    /// Creates a violation of a whole field, or of its absence.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
            value: None,
            rule: Rule::Other,
        }
    }

    /// Creates a violation of this value of a field.
    pub fn of_value(
        field: impl Into<String>,
        message: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        Self {
            value: Some(value.into()),
            ..Self::new(field, message)
        }
    }

    /// Formats all violations in one line.
    #[must_use]
    pub fn list(violations: &[Self]) -> String {
        let lines: Vec<String> = violations.iter().map(Self::to_string).collect();
        lines.join("; ")
    }

    /// Checks whether the violation concerns a duration, which has separate conditions.
    #[must_use]
    pub fn is_about_duration(&self) -> bool {
        self.field.ends_with("uration")
    }

    /// Returns the violation of a template's durations; `None` if they are valid.
    #[must_use]
    pub fn of_template_durations(violations: &[Self]) -> Option<DurationsInvalid> {
        let violation = violations.iter().find(|found| found.is_about_duration())?;
        Some(if violation.rule == Rule::DefaultWithinMax {
            DurationsInvalid::DefaultAboveMax
        } else {
            DurationsInvalid::Field {
                field: violation.field.replace("accessConfig.", ""),
                message: violation.message.clone(),
            }
        })
    }
}

/// The violation of a template's durations, in the words and with the paths of the original, which leave out
/// `accessConfig`. The condition [`TEMPLATE_DURATIONS_VALID`](oz_api::conditions::TEMPLATE_DURATIONS_VALID) has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationsInvalid {
    /// The default is longer than the maximum.
    #[error("Error: spec.defaultDuration can not be greater than spec.maxDuration")]
    DefaultAboveMax,
    /// A duration is invalid.
    #[error("Error on {field}: {message}")]
    Field {
        /// Path of the field.
        field: String,
        /// The violated requirement.
        message: String,
    },
}

impl Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.message)
    }
}

/// The violations that are found so far.
#[derive(Default)]
struct Found(Vec<Violation>);

impl Found {
    /// Adds a violation of a whole field, or of its absence.
    fn add(&mut self, field: &str, message: impl Into<String>) {
        self.0.push(Violation::new(field, message));
    }

    /// Returns the value of a check, or adds a violation with its error for this value.
    fn check<T, E: Display>(
        &mut self,
        field: &str,
        value: impl Into<String>,
        result: Result<T, E>,
    ) -> Option<T> {
        result
            .map_err(|error| {
                let violation = Violation::of_value(field, error.to_string(), value);
                self.0.push(violation);
            })
            .ok()
    }

    fn duration(&mut self, field: &str, text: &str) -> Option<GoDuration> {
        self.check(field, text, text.parse())
    }

    /// Returns the parsed object, if there are no violations and all its parts were parsed.
    fn finish<T>(self, made: Option<T>) -> Result<T, Vec<Violation>> {
        match made {
            Some(made) if self.0.is_empty() => Ok(made),
            _ => Err(self.0),
        }
    }
}

#[cfg(test)]
mod tests;
