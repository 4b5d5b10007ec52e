//! The function of a composite that is a Rego policy: compiled and called. The operator calls it before it acts, and
//! an explanation of a parent calls it to show what the operator would do: both with this crate.
//!
//! The crate is pure, as are `oz_composites` and `oz_rego`, which it combines: the caller passes the texts and the
//! instant.

use jiff::Timestamp;
use oz_api::rego;
use oz_composites::declared::{InProcess, Modules};
use oz_composites::supervise::PolicyFound;
use oz_composites::{AnswerError, Called, POLICY_FAILED, POLICY_INVALID, bundle, compared, ends};
use oz_core::controller::Failure;
use oz_rego::{Dialect, Language, Limits, Policy};
use serde_json::Value;

/// Returns the dialect of the text of a function.
#[must_use]
pub fn dialect(function: &InProcess) -> Dialect {
    let language = function.language.map(|language| match language {
        rego::Language::V0 => Language::V0,
        rego::Language::V1 => Language::V1,
    });
    let strict = function.strict;
    Dialect { language, strict }
}

/// Returns the failure that there is no text at `modules`.
#[must_use]
pub fn missing(modules: &Modules) -> Failure {
    let message = match modules {
        Modules::Bundle(namespace) => bundle::missing(namespace),
        Modules::Key { .. } | Modules::Inline(_) => format!("there is no ConfigMap key {modules}"),
    };
    Failure::transient("PolicyMissing", message)
}

/// Compiles modules and documents, each with its name and its text, from `place`.
///
/// # Errors
/// The errors of the texts, each with its line.
pub fn compile(
    place: &str,
    texts: &[(String, String)],
    dialect: Dialect,
) -> Result<Policy, Failure> {
    let compiled = Policy::compile_as(texts, dialect);
    compiled.map_err(|errors| Failure::invalid(POLICY_INVALID, bundle::broken(place, &errors)))
}

/// Returns the policy of a function as its composite's status names it.
#[must_use]
pub fn found(function: &InProcess, policy: &Policy) -> PolicyFound {
    let digest = digest(function, policy.digest_text());
    let language = policy.language().to_string();
    PolicyFound { digest, language }
}

/// Returns the digest of a function with these texts, whether or not they compile.
#[must_use]
pub fn digest_of_texts(function: &InProcess, texts: &[(String, String)]) -> String {
    digest(function, oz_rego::digest_text(oz_rego::digest(texts)))
}

/// Returns the digest of a function. For modules that are not a bundle, it also covers the package and the strictness:
/// they affect the result as much as the text.
fn digest(function: &InProcess, of_texts: String) -> String {
    match &function.modules {
        Modules::Bundle(_) => of_texts,
        Modules::Key { .. } | Modules::Inline(_) => {
            let text = |name: &str, text: String| (name.to_owned(), text);
            let parts = [
                text("policy", of_texts),
                text("package", function.path.clone()),
                text("strict", function.strict.to_string()),
            ];
            oz_rego::digest_text(oz_rego::digest(&parts))
        }
    }
}

/// Returns the response of a function to a request now, and at the instants that the parent names. The call takes as
/// long as the limit of evaluations allows; do not make it on a thread for which others wait.
///
/// # Errors
/// The function cannot be evaluated, or its result is not a valid response.
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

/// Returns the response of a function to a request now. The call takes as long as [`call`].
///
/// # Errors
/// The function cannot be evaluated, or is undefined.
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

/// Returns the failure that a function's response cannot be read.
#[must_use]
pub fn misread(function: &InProcess, error: &AnswerError) -> Failure {
    let message = format!("data.{}: its result {error}", function.path);
    Failure::invalid("ResponseInvalid", message)
}

/// Returns the failure that a function has no result.
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
