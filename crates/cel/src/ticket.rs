//! The evaluation of a server's response about a change ticket or a requester: `accept` of a ticket check over `status`
//! and `body`, and of an on-call check over `requester` in addition.

use std::time::Instant;

use kube_cel::cel::{Value, to_value};
use oz_core::access::policy::situation::Variable;

use crate::expression::first_line;
use crate::{CelError, Expression};

/// The variables that an expression may name; the last only that of an on-call check.
const VARIABLES: [Variable; 3] = [
    ("status", &[]),
    ("body", &[]),
    ("requester", &["user", "uid", "groups"]),
];

/// Compiles `accept` of a ticket check, or of an on-call check.
///
/// # Errors
/// The reason why it cannot be evaluated, in one line.
pub fn compile(text: &str, on_call: bool) -> Result<Expression, CelError> {
    let expression = Expression::compile(text, &["body", "requester"])?;
    let known = match on_call {
        true => &VARIABLES[..],
        false => &VARIABLES[..2],
    };
    expression.check_names(known)?;
    Ok(expression)
}

/// Checks whether a response with this status code and this content accepts the change ticket, or the requester.
/// Without content, an expression that uses `body` fails. Requires a separate stack, see [`apart`](crate::apart).
///
/// # Errors
/// The reason why the expression has no result.
pub fn accepts(
    text: &str,
    (status, body): (u16, Option<&serde_json::Value>),
    requester: Option<&serde_json::Value>,
    until: Instant,
) -> Result<bool, CelError> {
    let expression = compile(text, requester.is_some())?;
    let value = |content: &serde_json::Value| {
        to_value(content).map_err(|error| CelError::Content {
            line: first_line(&error.to_string()),
        })
    };
    let body = body.map(value).transpose()?;
    let requester = requester.map(value).transpose()?;
    let status = ("status", Value::Int(status.into()));
    let variables = [status]
        .into_iter()
        .chain(body.map(|body| ("body", body)))
        .chain(requester.map(|requester| ("requester", requester)));
    match expression.evaluate(variables, until)? {
        Value::Bool(accepts) => Ok(accepts),
        _ => Err(CelError::AcceptNotBoolean),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn said(text: &str, status: u16, body: &serde_json::Value) -> Result<bool, CelError> {
        accepts(
            text,
            (status, Some(body)),
            None,
            Instant::now() + Duration::from_secs(10),
        )
    }

    #[test]
    fn on_call_response_is_compared_with_the_requester() {
        let alice = json!({"user": "alice@shop.test", "uid": "u-1", "groups": ["devs", "sre"]});
        let body = json!({"data": {"onCallRecipients": ["bob@shop.test", "alice@shop.test"]}, "team": "sre",
                          "now": ["U4"]});
        for (text, expected) in [
            ("requester.user in body.data.onCallRecipients", true),
            (
                "body.data.onCallRecipients.exists(one, one == requester.user)",
                true,
            ),
            ("requester.uid in body.data.onCallRecipients", false),
            ("body.team in requester.groups", true),
            (
                "{'alice@shop.test': 'U4'}[requester.user] in body.now",
                true,
            ),
            (
                "{'alice@shop.test': 'U5'}[requester.user] in body.now",
                false,
            ),
        ] {
            let until = Instant::now() + Duration::from_secs(10);
            let said = accepts(text, (200, Some(&body)), Some(&alice), until);
            assert_eq!(said, Ok(expected), "{text}");
            assert!(compile(text, false).is_err(), "{text}");
        }
        assert!(compile("requester.name == 'alice'", true).is_err());
    }

    #[test]
    fn an_answer_is_judged_by_its_code_and_its_body() {
        let open =
            json!({"fields": {"status": {"name": "In Progress"}, "labels": ["prod"]}, "count": 3});
        for (text, expected) in [
            ("status == 200", true),
            (
                "status == 200 && body.fields.status.name == 'In Progress'",
                true,
            ),
            ("body.fields.status.name in ['Done', 'Closed']", false),
            (
                "status < 300 && body.count > 2 && 'prod' in body.fields.labels",
                true,
            ),
            ("has(body.fields.resolution)", false),
            ("status == '200'", false),
        ] {
            assert_eq!(said(text, 200, &open), Ok(expected), "{text}");
        }
        assert_eq!(
            said("status == 200 && body.open", 404, &json!(null)),
            Ok(false)
        );
    }

    #[test]
    fn ticket_expression_without_result_is_error() {
        let body = json!({"state": "open"});
        for text in [
            "body.missing == 'x'",
            "body.state",
            "size(body.state.deep) > 0",
            // A pattern that would need gigabytes.
            "body.state.matches('((a{1000}){1000}){1000}')",
        ] {
            assert!(said(text, 200, &body).is_err(), "{text}");
        }
        let until = Instant::now() + Duration::from_secs(10);
        assert!(accepts("body.state == 'open'", (200, None), None, until).is_err());
    }

    #[test]
    fn invalid_ticket_expression_is_rejected_at_compilation() {
        for text in [
            "",
            "ticket == 'x'",
            "status ==",
            "body.all(a, body.all(b, body.all(c, true)))",
        ] {
            assert!(compile(text, false).is_err(), "{text}");
        }
    }

    #[test]
    fn costly_ticket_expression_is_rejected_at_compilation() {
        for text in [
            "(".repeat(400),
            format!("{}true", "!".repeat(900)),
            "x".repeat(1024 * 1024),
            format!("[body]{}.size() == 1", ".map(a,[a,a])".repeat(30)),
            format!("size(body.title{}) > 0", " + body.title".repeat(30)),
            "body.labels.all(a, a.matches(a))".to_owned(),
            format!("{}true", "body.labels.all(a, a == '') || ".repeat(9)),
        ] {
            assert!(compile(&text, false).is_err(), "{}", &text[..30]);
            assert!(said(&text, 200, &json!({"title": "x", "labels": ["y"]})).is_err());
        }
    }
}
