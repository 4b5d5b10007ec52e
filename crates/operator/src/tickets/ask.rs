//! One query about one change ticket or one requester, and the meaning of its response. No message contains the
//! token, and of a server's response, messages contain only the status code.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Error, anyhow};
use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use oz_cel::CelError;
use oz_core::tickets::{Answer, Check, Subject};
use oz_outbound::{Allowed, Endpoint, OutboundError};
use oz_runtime::root_cause;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::queue::Queue;
use crate::servers::endpoint;

/// The maximum number of concurrent queries of each check.
pub(super) const AT_ONCE: usize = 16;

/// The maximum number of bytes that are read of a response.
const MOST_ANSWERED: usize = 256 << 10;
/// The timeout for the evaluation of a response.
const JUDGE_TIMEOUT: Duration = Duration::from_millis(500);

/// The error for a check that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidCheck {
    /// The expression for responses is invalid.
    #[error("accept: {0}")]
    Accept(CelError),
    /// The URL is invalid.
    #[error("url: {0}")]
    Url(OutboundError),
    /// The response of an on-call check is not about the requester.
    #[error(
        "accept: must compare the response with requester, because url has neither {{user}} nor {{uid}}"
    )]
    Requester,
}

/// The server of a check.
pub(super) struct Server {
    check: Check,
    endpoint: Endpoint,
    pub(super) turns: Arc<Semaphore>,
    /// The queries that wait for a turn.
    pub(super) queue: Mutex<Queue>,
}

impl Server {
    /// Creates the server of a check.
    ///
    /// # Errors
    /// The check has an invalid URL, or an invalid expression for responses.
    pub(super) fn new(
        (name, check): (&str, &Check),
        secrets: &Path,
        allowed: Allowed,
    ) -> Result<Self, InvalidCheck> {
        let accept = &check.accept;
        oz_cel::ticket::compile(accept, !check.is_ticket_check()).map_err(InvalidCheck::Accept)?;
        // Without the variable, it compiles only if it does not name it.
        let is_about_anyone = !check.is_ticket_check()
            && !check.names_requester()
            && oz_cel::ticket::compile(accept, false).is_ok();
        if is_about_anyone {
            return Err(InvalidCheck::Requester);
        }
        let url = allowed.url(&check.example_url());
        url.map_err(InvalidCheck::Url)?;
        let directory = Check::directory(secrets, name);
        let server = (&check.secret, check.public_roots);
        Ok(Self {
            check: check.clone(),
            endpoint: endpoint(allowed, server, &directory),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            queue: Mutex::default(),
        })
    }

    /// Queries the server about a subject, within its timeout.
    pub(super) async fn ask(&self, subject: &Subject) -> Answer {
        let timeout = self.check.terms().timeout.unsigned_abs();
        let answered = tokio::time::timeout(timeout, self.answered(subject)).await;
        let answered = answered.unwrap_or_else(|_| Err(anyhow!("no response within {timeout:?}")));
        match answered {
            Ok((status, body)) => self.judged(subject, status, body).await,
            Err(why) => Answer::Away(why.to_string()),
        }
    }

    async fn answered(&self, subject: &Subject) -> anyhow::Result<(StatusCode, Bytes)> {
        let uri = self.endpoint.allowed.url(&self.check.url(subject)?)?;
        let request = Request::get(uri).header(ACCEPT, "application/json");
        let request = self.endpoint.authenticated(request)?;
        let request = request.body(Full::default())?;
        let client = self.endpoint.client()?;
        let answer = client.request(request).await;
        let answer = answer.map_err(|error| Error::msg(root_cause(&error)))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MOST_ANSWERED).collect().await;
        let body = body.map_err(|error| {
            let why = root_cause(&*error);
            anyhow!("failed to read its response of at most {MOST_ANSWERED} bytes: {why}")
        })?;
        Ok((head.status, body.to_bytes()))
    }

    /// Evaluates a response. It counts only with a status code by which the server searched for the
    /// subject.
    async fn judged(&self, subject: &Subject, status: StatusCode, body: Bytes) -> Answer {
        let response = format!("the server responded {}", status.as_u16());
        if !speaks_of_subject(status) {
            return Answer::Away(response);
        }
        let body = match serde_json::from_slice(&body) {
            Ok(body) => body,
            // A proxy page before the server has code 200 as well.
            Err(_) if status.is_success() && !body.is_empty() => {
                return Answer::Away(format!("{response} with a body that is not JSON"));
            }
            Err(_) => Value::Null,
        };
        // The response for an existing ticket has contents.
        let body = Some(body).filter(|body| !(status.is_success() && body.is_null()));
        let accept = self.check.accept.clone();
        let requester = requester(subject);
        let work = move || {
            let until = Instant::now() + JUDGE_TIMEOUT;
            let judge = move || {
                let response = (status.as_u16(), body.as_ref());
                oz_cel::ticket::accepts(&accept, response, requester.as_ref(), until)
            };
            let judged = oz_cel::apart(JUDGE_TIMEOUT, judge).and_then(|judged| judged);
            judged.map_err(|why| why.to_string())
        };
        let judged = tokio::task::spawn_blocking(work).await;
        match judged.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(true) => Answer::Accepted,
            Ok(false) => Answer::Refused(format!("{response}, and accept is false")),
            Err(why) => Answer::Away(format!("{response}, and accept cannot be evaluated: {why}")),
        }
    }
}

/// Returns the variable `requester` of an on-call check.
fn requester(subject: &Subject) -> Option<Value> {
    match subject {
        Subject::Ticket(_) => None,
        Subject::Requester(person) => Some(json!({
            "user": person.user, "uid": person.uid, "groups": person.groups,
        })),
    }
}

/// Checks whether a code is about the subject, and not about the server or the client. A redirect is
/// not followed, and may lead to a login page.
fn speaks_of_subject(status: StatusCode) -> bool {
    const OF_THE_ASKER: [StatusCode; 6] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    status.is_success() || status.is_client_error() && !OF_THE_ASKER.contains(&status)
}

#[cfg(test)]
mod tests {
    use oz_core::tickets::Person;

    use super::*;

    fn server(url: &str, accept: &str) -> Result<Server, String> {
        let check: Check = serde_json::from_value(json!({"url": url, "accept": accept}))
            .map_err(|error| error.to_string())?;
        let server = Server::new(("jira", &check), Path::new("/etc/oz"), Allowed::default());
        server.map_err(|error| error.to_string())
    }

    fn said(answer: &Answer) -> &'static str {
        match answer {
            Answer::Accepted => "yes",
            Answer::Refused(_) => "no",
            Answer::Away(_) => "nothing",
        }
    }

    #[tokio::test]
    async fn a_server_says_yes_or_no_or_nothing() {
        let accept = "status == 200 && body.state == 'open'";
        let server = server("https://jira.test/{ticket}", accept).unwrap();
        for (status, body, expected) in [
            (200, r#"{"state": "open"}"#, "yes"),
            (200, r#"{"state": "closed"}"#, "no"),
            (204, "", "no"),
            (404, "", "no"),
            (404, "<html>", "no"),
            (410, "{}", "no"),
            (400, "{}", "no"),
            (200, "<html>please sign in</html>", "nothing"),
            (200, "{", "nothing"),
            (200, "{}", "nothing"),
            (200, "null", "nothing"),
            (200, "", "nothing"),
            (301, "{}", "nothing"),
            (302, r#"{"state": "open"}"#, "nothing"),
            (401, "{}", "nothing"),
            (403, "{}", "nothing"),
            (408, "{}", "nothing"),
            (429, "{}", "nothing"),
            (500, r#"{"state": "open"}"#, "nothing"),
            (503, "", "nothing"),
        ] {
            let code = StatusCode::from_u16(status).unwrap();
            let ticket = Subject::Ticket("INC-1".to_owned());
            let answer = server.judged(&ticket, code, Bytes::from(body)).await;
            assert_eq!(said(&answer), expected, "{status} {body}: {answer:?}");
        }
    }

    #[tokio::test]
    async fn on_call_response_about_another_user_or_without_answer_accepts_no_one() {
        let accept = "status == 200 && body.on_call.exists(one, one.email == requester.user)";
        let server = server("https://duty.test/now", accept).unwrap();
        let alice = Subject::Requester(Person {
            user: "alice@shop.test".to_owned(),
            ..Person::default()
        });
        for (status, body, expected) in [
            (
                200,
                r#"{"on_call": [{"email": "bob@shop.test"}, {"email": "alice@shop.test"}]}"#,
                "yes",
            ),
            (200, r#"{"on_call": [{"email": "bob@shop.test"}]}"#, "no"),
            (200, r#"{"on_call": []}"#, "no"),
            (404, "", "no"),
            (200, r#"{"on_call": [{"name": "alice"}]}"#, "nothing"),
            (200, "{}", "nothing"),
            (200, "<html>alice@shop.test</html>", "nothing"),
            (
                302,
                r#"{"on_call": [{"email": "alice@shop.test"}]}"#,
                "nothing",
            ),
            (
                401,
                r#"{"on_call": [{"email": "alice@shop.test"}]}"#,
                "nothing",
            ),
            (429, "", "nothing"),
            (
                500,
                r#"{"on_call": [{"email": "alice@shop.test"}]}"#,
                "nothing",
            ),
        ] {
            let code = StatusCode::from_u16(status).unwrap();
            let answer = server.judged(&alice, code, Bytes::from(body)).await;
            assert_eq!(said(&answer), expected, "{status} {body}: {answer:?}");
        }
    }

    #[tokio::test]
    async fn on_call_check_is_not_asked_about_a_ticket_or_without_its_values() {
        let server = server("https://duty.test/{uid}", "status == 200").unwrap();
        for subject in [
            Subject::Ticket("INC-1".to_owned()),
            Subject::Requester(Person::default()),
        ] {
            let answer = server.ask(&subject).await;
            assert!(matches!(answer, Answer::Away(_)), "{subject:?}: {answer:?}");
        }
    }

    #[tokio::test]
    async fn ticket_response_nested_too_deeply_gives_no_answer() {
        let server = server("https://jira.test/{ticket}", "status == 200").unwrap();
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let ticket = Subject::Ticket("INC-1".to_owned());
        let answer = server
            .judged(&ticket, StatusCode::OK, Bytes::from(deep))
            .await;
        assert!(matches!(answer, Answer::Away(_)), "{answer:?}");
    }

    #[test]
    fn a_check_that_cannot_be_asked_stops_the_operator_before_it_starts() {
        for (url, accept, said) in [
            ("https://127.0.0.1/{ticket}", "status == 200", "url"),
            ("https://[fe80::1]/{ticket}", "status == 200", "url"),
            ("https://169.254.169.254/{ticket}", "status == 200", "url"),
            (
                "https://user:secret@jira.test/{ticket}",
                "status == 200",
                "url",
            ),
            ("https://jira.test/{ticket}", "status ==", "accept"),
            ("https://jira.test/{ticket}", "ticket == 'x'", "accept"),
            (
                "https://jira.test/{ticket}",
                "requester.user == 'x'",
                "accept",
            ),
            (
                "https://duty.test/{user}",
                "requester.name == 'x'",
                "accept",
            ),
            // The text "requester" is not the variable.
            ("https://duty.test/now", "body.requester == 'x'", "accept"),
            ("https://127.0.0.1/{user}", "status == 200", "url"),
        ] {
            let why = server(url, accept).err().unwrap();
            assert!(
                why.starts_with(said) && !why.contains("secret"),
                "{url}: {why}"
            );
        }
    }
}
