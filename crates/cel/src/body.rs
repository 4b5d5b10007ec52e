//! The body of a notification: an expression over an audit record that returns a map, which is written as JSON. A
//! value of a user in it is always a value of the JSON; the functions `codeSpan` and `escapeHtml` write
//! it into a text with a markup.

use std::sync::Arc;
use std::time::Instant;

use kube_cel::cel::objects::Key;
use kube_cel::cel::{Context, Value, to_value};
use oz_core::access::policy::situation::Variable;

use crate::expression::first_line;
use crate::{CelError, Expression};

/// The maximum length of an expression, in bytes.
pub const MAX_EXPRESSION: usize = 8 << 10;
/// The maximum number of operators in an expression.
const MAX_OPERATORS: usize = 128;
/// The maximum length of a body, in bytes.
pub const MAX_BODY: usize = 256 << 10;

/// The maximum depth of brackets: the parser recurses.
const MAX_NESTING: usize = 32;
/// The error for a larger one.
const TOO_LARGE: CelError = CelError::BodyTooLarge { most: MAX_BODY };
/// The fields of an audit record, see docs/reference/audit.md.
const RECORD: [&str; 12] = [
    "id", "time", "action", "decision", "reason", "message", "user", "request", "template", "pod",
    "until", "details",
];
/// The variables that an expression may name.
const VARIABLES: [Variable; 3] = [("record", &RECORD), ("link", &[]), ("secret", &[])];
/// The functions in addition to those of every expression.
const FUNCTIONS: [&str; 2] = ["codeSpan", "escapeHtml"];

/// Compiles the expression of a body. Requires a separate stack, see [`apart`](crate::apart).
///
/// # Errors
/// The reason why it cannot be evaluated, in one line.
pub fn compile(text: &str) -> Result<Expression, CelError> {
    // Operators in a row nest, and parsers recurse. Those in texts count, too.
    let operators = text.bytes().filter(|byte| b"+-*/%.<>=&|[?!".contains(byte));
    if operators.count() > MAX_OPERATORS {
        return Err(CelError::Operators {
            most: MAX_OPERATORS,
        });
    }
    if nesting(text) > MAX_NESTING {
        return Err(CelError::Nested { most: MAX_NESTING });
    }
    // The record is small, and the size of the body is bounded: the number of its copies is not.
    let expression = Expression::compile_within(text, MAX_EXPRESSION, &[])?;
    expression.check_names_with(&VARIABLES, &FUNCTIONS)?;
    Ok(expression)
}

/// Returns the depth of the brackets in a text, also of those in its literals.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The variables of a body.
#[derive(Clone, Debug)]
pub struct Variables {
    /// The audit record.
    pub record: serde_json::Value,
    /// The link of the route, a text.
    pub link: serde_json::Value,
    /// The values of the route's Secret.
    pub secret: serde_json::Value,
}

/// Returns the body for an audit record. Requires a separate stack, see [`apart`](crate::apart).
///
/// # Errors
/// The reason why there is no body. The message contains no value of the Secret.
pub fn evaluate(text: &str, variables: &Variables, until: Instant) -> Result<Vec<u8>, CelError> {
    let expression = compile(text)?;
    // The library's errors contain the values that do not fit.
    let has_secret = variables.secret.as_object().is_none_or(|it| !it.is_empty());
    let variables = [
        ("record", &variables.record),
        ("link", &variables.link),
        ("secret", &variables.secret),
    ];
    let mut values = Vec::new();
    for (name, value) in variables {
        let value = to_value(value).map_err(|error| CelError::Content {
            line: first_line(&error.to_string()),
        })?;
        values.push((name, value));
    }
    let value = expression.evaluate_with(values, until, |context: &mut Context<'_>| {
        context.add_function("codeSpan", |text: Arc<String>| code_span(&text));
        context.add_function("escapeHtml", |text: Arc<String>| escape_html(&text));
    });
    let value = value.map_err(|error| match error {
        CelError::Evaluation { .. } if has_secret => CelError::Hidden,
        error => error,
    })?;
    if !matches!(value, Value::Map(_)) {
        return Err(CelError::NotMap);
    }
    let mut left = MAX_BODY;
    let body = json(&value, &mut left)?.to_string().into_bytes();
    match body.len() > MAX_BODY {
        true => Err(TOO_LARGE),
        false => Ok(body),
    }
}

/// Returns a text as code in Markdown, in which nothing is a mention or a link.
fn code_span(text: &str) -> String {
    let text = text.replace('`', "'");
    match text.trim() {
        "" => String::new(),
        text => format!("`{text}`"),
    }
}

/// Returns a text in which no character is one of HTML.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// Returns a value as JSON, of which `left` bytes are left: a value may contain another one often.
fn json(value: &Value, left: &mut usize) -> Result<serde_json::Value, CelError> {
    spend(left, 1)?;
    Ok(match value {
        Value::Map(map) => {
            let mut fields = serde_json::Map::new();
            for (key, value) in map.map.iter() {
                let Key::String(key) = key else {
                    return Err(CelError::BodyKey);
                };
                spend(left, key.len() + 4)?;
                fields.insert(key.to_string(), json(value, left)?);
            }
            fields.into()
        }
        Value::List(items) => {
            let items = items.iter().map(|item| json(item, left));
            items.collect::<Result<Vec<_>, _>>()?.into()
        }
        Value::String(text) => {
            spend(left, text.len() + 2)?;
            text.as_str().into()
        }
        Value::Int(number) => (*number).into(),
        Value::UInt(number) => (*number).into(),
        Value::Float(number) if number.is_finite() => (*number).into(),
        Value::Bool(value) => (*value).into(),
        Value::Null => serde_json::Value::Null,
        other => {
            let kind = other.type_of().to_string();
            return Err(CelError::BodyValue { kind });
        }
    })
}

fn spend(left: &mut usize, bytes: usize) -> Result<(), CelError> {
    *left = left.checked_sub(bytes).ok_or(TOO_LARGE)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn record() -> serde_json::Value {
        json!({
            "action": "ApprovalRequested", "message": "waiting for \"bob\"\n",
            "request": {"namespace": "shop", "name": "inc-42", "uid": "u-1"},
            "details": {"reason": "@channel `x` <b>&"}, "until": "",
        })
    }

    fn variables(record: serde_json::Value) -> Variables {
        Variables {
            record,
            link: json!("https://console.test/a"),
            secret: json!({"routing-key": "R0"}),
        }
    }

    fn body(text: &str) -> Result<serde_json::Value, CelError> {
        let until = Instant::now() + Duration::from_secs(10);
        let text = text.to_owned();
        let work = move || evaluate(&text, &variables(record()), until);
        let body = crate::apart(Duration::from_secs(10), work).and_then(|body| body)?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }

    #[test]
    fn map_over_record_is_written_as_json() {
        for (text, expected) in [
            (
                "{'text': record.message}",
                json!({"text": "waiting for \"bob\"\n"}),
            ),
            (
                "{'a': [1, 2u, 1.5, true, null], 'b': {'c': link}, 'd': []}",
                json!({"a": [1, 2, 1.5, true, null], "b": {"c": "https://console.test/a"}, "d": []}),
            ),
            (
                "{'event_action': record.action == 'AccessGranted' ? 'trigger' : 'resolve', \
                  'dedup_key': record.request.uid}",
                json!({"event_action": "resolve", "dedup_key": "u-1"}),
            ),
            (
                "{'text': 'Why: ' + codeSpan(record.details.reason) + codeSpan(record.until)}",
                json!({"text": "Why: `@channel 'x' <b>&`"}),
            ),
            (
                "{'routing_key': secret['routing-key']}",
                json!({"routing_key": "R0"}),
            ),
            (
                "{'text': escapeHtml(record.details.reason)}",
                json!({"text": "@channel `x` &lt;b&gt;&amp;"}),
            ),
            (
                "{'text': record.message, 'a': record.action, 'b': record.action, 'c': \
                  record.action, 'd': record.action, 'e': record.request}",
                json!({
                    "text": "waiting for \"bob\"\n", "a": "ApprovalRequested",
                    "b": "ApprovalRequested", "c": "ApprovalRequested", "d": "ApprovalRequested",
                    "e": {"namespace": "shop", "name": "inc-42", "uid": "u-1"},
                }),
            ),
        ] {
            assert_eq!(body(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn body_that_is_no_map_of_json_is_error() {
        for (text, error) in [
            ("record.message", CelError::NotMap),
            ("[{'text': 'a'}]", CelError::NotMap),
            ("null", CelError::NotMap),
            ("{1: 'a'}", CelError::BodyKey),
            ("{'a': {true: 'a'}}", CelError::BodyKey),
            (
                "{'a': b'abc'}",
                CelError::BodyValue {
                    kind: "bytes".to_owned(),
                },
            ),
        ] {
            assert_eq!(body(text), Err(error), "{text}");
        }
        assert!(body("{'a': record.details.missing}").is_err());
        assert!(body("{'a': 1.0 / 0.0}").is_err());
        let leaked = body("{'a': secret['routing-key'] + 1}").unwrap_err();
        assert_eq!(leaked, CelError::Hidden);
    }

    #[test]
    fn body_expression_without_bounds_is_rejected_at_compilation() {
        for text in [
            "",
            "{'a':",
            "{'a': argv[0]}",
            "{'a': record.nmae}",
            "{'a': exec('ls')}",
            &format!("{{'a': '{}'}}", "x".repeat(1 << 20)),
            &format!("{}1{}", "{'a': ".repeat(200), "}".repeat(200)),
            &format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)),
            "{'a': record.details.map(k, [record, record])}",
        ] {
            let copy = text.to_owned();
            let compiled = crate::apart(Duration::from_secs(10), move || compile(&copy).map(drop));
            let compiled = compiled.and_then(|compiled| compiled);
            assert!(compiled.is_err(), "{}", &text[..text.len().min(40)]);
        }
    }

    #[test]
    fn body_larger_than_maximum_is_error() {
        let many = format!("{{'a': [{}'']}}", "record, ".repeat(1_000));
        assert!(body(&many).is_ok());
        let text = "x".repeat(300);
        let large = format!(
            "{{'a': '{text}' + '{text}', 'b': [{}'']}}",
            "[record], ".repeat(100)
        );
        assert!(body(&large).is_ok());
        let until = Instant::now() + Duration::from_secs(10);
        let large = variables(json!({"message": "x".repeat(3_000)}));
        let refused = crate::apart(Duration::from_secs(10), move || {
            evaluate(&many, &large, until)
        });
        assert_eq!(refused, Ok(Err(TOO_LARGE)));
    }

    #[test]
    fn long_chain_of_operators_is_rejected_before_parsing() {
        let most = MAX_OPERATORS;
        for text in [
            format!("{{'a': {}1}}", "1+".repeat(4_000)),
            format!("{{'a': record{}}}", ".id".repeat(2_700)),
            format!("{{'a': link{}}}", "[0]".repeat(2_700)),
            format!("{{'a': {}true}}", "true||".repeat(1_300)),
        ] {
            assert!(text.len() <= MAX_EXPRESSION, "{}", text.len());
            assert_eq!(body(&text), Err(CelError::Operators { most }));
        }
        assert!(body(&format!("{{'a': {}1}}", "1+".repeat(120))).is_ok());
    }
}
