//! The evaluation of a policy for an input at an instant.

use std::time::Duration;

use jiff::Timestamp;
use oz_composites::{compared, ends};
use oz_rego::{Answer, CompileErrors, EvaluateError, Limits, Policy};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::request;

/// The reason why a policy gives no document.
#[derive(Debug, thiserror::Error)]
pub enum EvaluationError {
    /// The policy does not compile; the message is about the first error.
    #[error("{}", first(.0))]
    Uncompiled(CompileErrors),
    /// The policy fails.
    #[error(transparent)]
    Failed(#[from] EvaluateError),
    /// The policy has no document at this path.
    #[error("data.{path} is undefined")]
    Undefined {
        /// The path.
        path: String,
    },
    /// The text of a timeout is no duration.
    #[error("must be a duration such as 500ms or 2s")]
    Timeout,
}

fn first(errors: &CompileErrors) -> String {
    let errors = errors.errors().iter().take(1);
    errors.map(ToString::to_string).collect()
}

impl From<EvaluationError> for Failure {
    fn from(error: EvaluationError) -> Self {
        let failure = Self::new(error.to_string());
        match error {
            EvaluationError::Uncompiled(errors) => match errors.errors().len() {
                1 => failure,
                count => failure.next(format!("`ozctl rego check` shows all {count} errors")),
            },
            EvaluationError::Failed(EvaluateError::Time(_)) => {
                failure.next("give it longer with --timeout")
            }
            EvaluationError::Undefined { .. } => {
                failure.next("check the path: it begins with the package of the policy")
            }
            EvaluationError::Failed(_) | EvaluationError::Timeout => failure,
        }
    }
}

/// Compiles the modules and documents of a policy: name and text of each.
///
/// # Errors
/// The policy does not compile.
pub fn compile(texts: &[(String, String)]) -> Result<Policy, EvaluationError> {
    Policy::compile(texts).map_err(EvaluationError::Uncompiled)
}

/// Parses the maximum duration of an evaluation, in the format of Go.
///
/// # Errors
/// The text is no duration, or not a positive one.
pub fn timeout(text: &str) -> Result<Duration, EvaluationError> {
    let duration = request::go_duration(text).filter(|duration| !duration.is_zero());
    duration.ok_or(EvaluationError::Timeout)
}

/// Returns the document of a policy at a path.
///
/// # Errors
/// The document is undefined, or the policy fails.
pub fn evaluate(
    policy: &Policy,
    path: &str,
    input: &Value,
    now: Timestamp,
    limits: &Limits,
) -> Result<Value, EvaluationError> {
    match policy.evaluate(path, input, now, limits)? {
        Answer::Document(document) => Ok(document),
        Answer::Undefined => Err(EvaluationError::Undefined {
            path: path.to_owned(),
        }),
    }
}

/// Returns the document of a policy at a path, and the instants at which it changes, by the instants that the parent in
/// the input names.
///
/// # Errors
/// The policy fails.
pub fn preview(
    policy: &Policy,
    path: &str,
    input: &Value,
    now: Timestamp,
    limits: &Limits,
) -> Result<Value, EvaluationError> {
    // For an input of another shape: the instants in any of its fields.
    let parent = input.get("parent").unwrap_or(input);
    let instants = ends::instants(parent, now);
    let part = |answer: &Answer| answer.document().map(compared);
    let preview = policy.preview(path, input, &instants, now, limits, part)?;
    let changes = preview
        .changes
        .iter()
        .map(|change| json!({"at": change.at, "answer": change.answer.document()}));
    Ok(json!({
        "now": preview.now.document(),
        "changes": changes.collect::<Vec<_>>(),
        "triedUntil": preview.tried_until,
    }))
}
