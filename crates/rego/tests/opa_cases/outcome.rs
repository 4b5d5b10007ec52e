//! The outcome of a case: the query becomes a rule, and its answers are compared.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use oz_rego::{Answer, CompileErrors, Dialect, EvaluateError, Language, Limits, Policy, Reason};
use serde_json::{Value, json};

use crate::case::Case;

/// The comparison of an answer with OPA's.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Same,
    /// The policy uses something that is refused by name.
    Refused(String),
    Differs(String),
}

/// The only refusals by name: functions that do not depend on the input alone, the functions of other
/// fields, and the syntax of OPA 1.6 and later.
const REFUSED: [(&str, &str); 13] = [
    ("http.send", "http.send"),
    ("net.lookup_ip_addr", "net.lookup_ip_addr"),
    ("opa.runtime", "opa.runtime"),
    ("rand.intn", "rand.intn"),
    ("uuid.rfc4122", "uuid.rfc4122"),
    ("io.jwt.", "JWT"),
    ("crypto.", "X.509 and keys"),
    ("graphql.", "GraphQL"),
    ("the keyword", "keywords in references"),
    ("`$", "template strings"),
    ("`not {", "not {}"),
    ("`and`", "and, or"),
    ("`or`", "and, or"),
];

/// Evaluates a case.
pub(crate) fn evaluate(case: &Case) -> Outcome {
    let mut modules: Vec<(String, String)> = case
        .modules
        .iter()
        .enumerate()
        // OPA has this function in its own tests only.
        .map(|(at, text)| {
            (
                format!("test-{at}.rego"),
                text.replace("test.sleep(\"10ms\")", "true"),
            )
        })
        .collect();
    modules.push(("query.rego".to_owned(), query(case)));
    let dialect = Dialect {
        language: Some(case.language),
        strict: case.strict_error,
    };
    let data = if case.data.is_null() {
        json!({})
    } else {
        case.data.clone()
    };
    let policy = match Policy::compile_with_data(&modules, &data, dialect) {
        Ok(policy) => policy,
        Err(errors) => return refusal(&errors),
    };
    let limits = Limits {
        time: Duration::from_secs(20),
        ..Limits::default()
    };
    let (path, now) = ("oz_case.answers", Timestamp::UNIX_EPOCH);
    let answer = match &case.input {
        Some(input) => policy.evaluate(path, input, now, &limits),
        None => policy.evaluate_without_input(path, now, &limits),
    };
    compare(case, answer)
}

/// Returns the group of a policy that is refused by name; its error has a line, and says what to write instead.
fn refusal(errors: &CompileErrors) -> Outcome {
    for error in errors.errors() {
        let message = &error.message;
        let kind = matches!(
            error.reason,
            Reason::NotSupported | Reason::NotAFunctionOfInput
        );
        let group = REFUSED.iter().find(|(name, _)| message.starts_with(name));
        if let Some((_, group)) = group.filter(|_| kind && error.line > 0) {
            let named = message.contains(" is not supported");
            assert!(named && message.contains(": "), "{message}");
            return Outcome::Refused((*group).to_owned());
        }
        if kind && message.starts_with("`import rego.v2`") {
            return Outcome::Refused("import rego.v2".to_owned());
        }
    }
    Outcome::Differs(format!("compile: {errors}"))
}

/// The rule that collects the variables of the query.
fn query(case: &Case) -> String {
    let variables = variables(&case.query);
    let answer: Vec<String> = variables
        .iter()
        .map(|name| format!("\"{name}\": {name}"))
        .collect();
    let answer = answer.join(", ");
    let input = match &case.input_term {
        Some(term) => format!(" with input as {term}"),
        None => String::new(),
    };
    let query = whole(case).unwrap_or_else(|| case.query.clone());
    let body: Vec<String> = query
        .split("; ")
        .map(|part| format!("{part}{input}"))
        .collect();
    let body = body.join("\n  ");
    match case.language {
        Language::V1 => {
            format!("package oz_case\n\nanswers contains {{{answer}}} if {{\n  {body}\n}}\n")
        }
        Language::V0 => format!(
            "package oz_case\n\nanswers[answer] {{\n  {body}\n answer := {{{answer}}}\n}}\n"
        ),
    }
}

/// Returns a query for all of `data` as one for its documents: the rule of the query is below `data` too.
fn whole(case: &Case) -> Option<String> {
    let rest = case.query.strip_prefix("data = ")?;
    let packages = case.modules.iter().map(|module| {
        let package = module.split_once("package ").map_or("", |(_, rest)| rest);
        package.split(['.', '\n']).next().unwrap_or("")
    });
    let packages: BTreeSet<&str> = packages.collect();
    let documents: Vec<String> = packages
        .into_iter()
        .map(|name| format!("\"{name}\": data.{name}"))
        .collect();
    Some(format!("{{{}}} = {rest}", documents.join(", ")))
}

/// Returns the names that stand alone in a query.
fn variables(query: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let bytes = query.as_bytes();
    let mut at = 0;
    let mut quoted = false;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == b'"' {
            quoted = !quoted;
        }
        if !quoted && (byte.is_ascii_alphabetic() || byte == b'_') {
            let end = query[at..]
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .map_or(query.len(), |len| at + len);
            let name = &query[at..end];
            let is_part = at > 0 && bytes[at - 1] == b'.'
                || bytes.get(end) == Some(&b'.')
                || bytes.get(end) == Some(&b'(');
            if !is_part && !["data", "input", "true", "false", "null"].contains(&name) {
                found.insert(name);
            }
            at = end;
        } else {
            at += 1;
        }
    }
    found
}

fn compare(case: &Case, answer: Result<Answer, EvaluateError>) -> Outcome {
    let wants_error = case.want_error.is_some() || case.want_error_code.is_some();
    match answer {
        Err(error) if wants_error => match error {
            EvaluateError::Internal => Outcome::Differs(format!("error: {error}")),
            _ => Outcome::Same,
        },
        Err(error) => Outcome::Differs(format!("error: {error}")),
        Ok(answer) => {
            let got = answer.document().cloned().unwrap_or(json!([]));
            let Some(want) = &case.want_result else {
                let code = case.want_error_code.clone().unwrap_or_default();
                return Outcome::Differs(format!("no error: {got}, {code} {:?}", case.want_error));
            };
            let want = set(want.clone(), case.sort_bindings);
            let got = set(
                got.as_array().cloned().unwrap_or_default(),
                case.sort_bindings,
            );
            if want == got {
                Outcome::Same
            } else {
                Outcome::Differs(format!("answer: {got:?}, and not {want:?}"))
            }
        }
    }
}

/// Returns answers as a set of texts.
fn set(answers: Vec<Value>, sort_bindings: bool) -> BTreeSet<String> {
    let answers = answers.into_iter().map(|mut answer| {
        for value in answer.as_object_mut().unwrap().values_mut() {
            if sort_bindings && let Value::Array(items) = value {
                items.sort_by_key(|item| canonical(item).to_string());
            }
            *value = canonical(value);
        }
        answer.to_string()
    });
    answers.collect()
}

/// Returns a value with numbers as OPA compares them.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.as_i64().is_none() => {
            let float = number.as_f64().unwrap_or(f64::NAN);
            if float.fract() == 0.0 && float.abs() < 1e15 {
                json!(float as i64)
            } else {
                json!(float)
            }
        }
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, value)| (key.clone(), canonical(value)))
                .collect(),
        ),
        other => other.clone(),
    }
}
