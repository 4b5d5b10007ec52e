//! From a spec, as anyone may have written it, to values that make sense, or to everything that is
//! wrong with it. The webhook, the operator and the command line call the same functions, so that
//! they never differ about what is valid.

mod access_config;
mod access_pod;
mod approval;
mod attestation;
mod debug;
mod emergency;
mod lock;
mod metadata;
mod name;
mod policy;
mod quantity;
mod request;
mod template;
mod text;
mod ticket;

use std::fmt::{self, Display};

use oz_api::duration::GoDuration;

pub use access_pod::{AccessPod, Ceilings, MAX_PATCH_DEPTH, MAX_PATCH_VALUE, PodSource};
pub use approval::approval;
pub use attestation::rationale;
pub use emergency::review;
pub use lock::{MAX_LOCK, When as LockWhen, lock};
pub use metadata::{MetadataBounds, REQUEST_METADATA, TEMPLATE_METADATA, metadata};
pub use name::{dns_label, dns_subdomain};
pub(crate) use policy::config as policy_rules;
pub use policy::{policy, unsatisfiable};
pub use quantity::{Amount, QuantityError};
pub use request::{MAX_GENERATE_NAME, MAX_REQUEST_NAME, ValidatedRequest, request};
pub use template::{
    MAX_TEMPLATE_SPEC, Target, ValidatedTemplate, exec_access_template, pod_access_template,
};
pub use text::{MAX_REASON, readable};
pub use ticket::{matching, ticket};

/// Something in an object that cannot stay as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, such as `spec.accessConfig.maxDuration`.
    pub field: String,
    /// What is wrong, or what must be.
    pub message: String,
    /// The value that is wrong, if it is one value and not the lack of one.
    pub value: Option<String>,
    /// Which rule is broken, where that matters to somebody.
    pub rule: Rule,
}

/// A rule that somebody goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Any other.
    #[default]
    Other,
    /// The default duration of a template is no longer than the longest.
    DefaultWithinMax,
}

impl Violation {
    /// That a field is wrong as a whole, or that it is not there.
    pub fn of(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
            value: None,
            rule: Rule::Other,
        }
    }

    /// That this value of a field is wrong.
    pub fn of_value(
        field: impl Into<String>,
        message: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        Self {
            value: Some(value.into()),
            ..Self::of(field, message)
        }
    }

    /// All of them in one line.
    #[must_use]
    pub fn list(violations: &[Self]) -> String {
        let lines: Vec<String> = violations.iter().map(Self::to_string).collect();
        lines.join("; ")
    }

    /// Whether a duration is at fault, which has conditions of its own.
    #[must_use]
    pub fn is_about_duration(&self) -> bool {
        self.field.ends_with("uration")
    }

    /// What is wrong with a template's durations, in the words of the condition
    /// [`TEMPLATE_DURATIONS_VALID`](oz_api::conditions::TEMPLATE_DURATIONS_VALID); `None` if they
    /// are valid.
    #[must_use]
    pub fn of_template_durations(violations: &[Self]) -> Option<String> {
        let violation = violations.iter().find(|found| found.is_about_duration())?;
        // The words are the original's, and so are its paths, which leave out `accessConfig`.
        Some(if violation.rule == Rule::DefaultWithinMax {
            "Error: spec.defaultDuration can not be greater than spec.maxDuration".to_owned()
        } else {
            let field = violation.field.replace("accessConfig.", "");
            format!("Error on {field}: {}", violation.message)
        })
    }
}

impl Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.message)
    }
}

/// The violations found so far.
#[derive(Default)]
struct Found(Vec<Violation>);

impl Found {
    /// Notes that a field is wrong as a whole, or that it is not there.
    fn add(&mut self, field: &str, message: impl Into<String>) {
        self.0.push(Violation::of(field, message));
    }

    /// Passes on what a check gave, or notes why it failed on this value.
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

    /// What was made of the object, if nothing was found and all of it could be made.
    fn finish<T>(self, made: Option<T>) -> Result<T, Vec<Violation>> {
        match made {
            Some(made) if self.0.is_empty() => Ok(made),
            _ => Err(self.0),
        }
    }
}

#[cfg(test)]
mod tests;
