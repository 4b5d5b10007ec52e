//! The function of a composite that is a policy in Rego: compiled and asked. The operator asks it before it acts, and
//! whoever explains a parent asks it to tell what the operator would do: both by this.
//!
//! Pure, as `oz_composites` and `oz_rego` are, which it puts together: the texts and the instant are given.

use jiff::Timestamp;
use oz_api::rego;
use oz_composites::declared::{InProcess, Modules};
use oz_composites::supervise::PolicyFound;
use oz_composites::{Called, POLICY_FAILED, bundle, compared, ends};
use oz_core::controller::Failure;
use oz_rego::{Dialect, Language, Limits, Policy};
use serde_json::Value;

/// How the text of a function is read.
#[must_use]
pub fn dialect(function: &InProcess) -> Dialect {
    let language = function.language.map(|language| match language {
        rego::Language::V0 => Language::V0,
        rego::Language::V1 => Language::V1,
    });
    let strict = function.strict;
    Dialect { language, strict }
}

/// That there is no text at `place`.
#[must_use]
pub fn missing(modules: &Modules) -> Failure {
    let message = match modules {
        Modules::Bundle(namespace) => bundle::missing(namespace),
        Modules::Key { .. } | Modules::Inline(_) => format!("there is no ConfigMap key {modules}"),
    };
    Failure::transient("PolicyMissing", message)
}

/// Compiles modules, each with its name and its text, that are at `place`.
///
/// # Errors
/// What is wrong with them, with the line of each error.
pub fn compile(
    place: &str,
    modules: &[(String, String)],
    dialect: Dialect,
) -> Result<Policy, Failure> {
    let compiled = Policy::compile_as(modules, dialect);
    compiled.map_err(|errors| Failure::invalid("PolicyInvalid", bundle::broken(place, &errors)))
}

/// The policy of a function as its composite's status names it. The digest of what is no bundle is also one of what it
/// is asked: that decides as much as its text.
#[must_use]
pub fn found(function: &InProcess, policy: &Policy) -> PolicyFound {
    let digest = match &function.modules {
        Modules::Bundle(_) => policy.digest_text(),
        Modules::Key { .. } | Modules::Inline(_) => {
            let text = |name: &str, text: String| (name.to_owned(), text);
            let parts = [
                text("policy", policy.digest_text()),
                text("package", function.path.clone()),
                text("strict", function.strict.to_string()),
            ];
            oz_rego::digest_text(oz_rego::digest(&parts))
        }
    };
    let language = policy.language().to_string();
    PolicyFound { digest, language }
}

/// What a function says to a request now, and at the instants that the parent names. Takes as long as its limit of
/// evaluations allows, and is not for a thread that others wait on.
///
/// # Errors
/// When it cannot be evaluated, or what it says is no answer.
pub fn call(
    function: &InProcess,
    policy: &Policy,
    request: &Value,
    strict: bool,
    now: Timestamp,
) -> Result<Called, Failure> {
    let path = &function.path;
    let instants = ends::instants(&request["parent"], now);
    let limits = limits(function);
    let preview = policy.preview(path, request, &instants, now, &limits, |answer| {
        answer.document().map(compared)
    });
    let preview = preview.map_err(|error| failed(function, &error))?;
    let ahead = preview.changes.iter();
    let ahead = ahead.map(|change| (change.at, change.answer.document()));
    let said = preview.now.document();
    let called = Called::of_policy(path, said, ahead, preview.tried_until, strict)?;
    Ok(Called {
        policy: Some(found(function, policy).digest),
        ..called
    })
}

/// What a function says to a request now. As long as [`call`].
///
/// # Errors
/// When it cannot be evaluated, or says nothing.
pub fn document(
    function: &InProcess,
    policy: &Policy,
    request: &Value,
    now: Timestamp,
) -> Result<Value, Failure> {
    let answer = policy.evaluate(&function.path, request, now, &limits(function));
    let answer = answer.map_err(|error| failed(function, &error))?;
    let document = answer.document().cloned();
    document.ok_or_else(|| failed(function, &"is undefined for this parent"))
}

/// That a function's answer cannot be read.
#[must_use]
pub fn misread(function: &InProcess, error: &str) -> Failure {
    let message = format!("data.{}: its answer {error}", function.path);
    Failure::invalid("AnswerInvalid", message)
}

/// That a function did not come to an answer.
#[must_use]
pub fn failed(function: &InProcess, error: &dyn std::fmt::Display) -> Failure {
    Failure::transient(POLICY_FAILED, format!("data.{}: {error}", function.path))
}

fn limits(function: &InProcess) -> Limits {
    let mut limits = Limits::default();
    limits.time = function.evaluation.unwrap_or(limits.time);
    limits
}

#[cfg(test)]
mod tests;
