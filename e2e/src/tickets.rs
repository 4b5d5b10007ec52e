//! A server for ticket checks and on-call checks that responds as a test configures it.

use std::sync::Arc;

use anyhow::Result;
use oz_api::{ExecAccessTemplate, TargetKind, TicketConfig};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::{Options, WORKLOAD, exec_template};

/// The response of the server for every change ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketAnswer {
    /// The ticket is open.
    Open,
    /// The ticket is closed.
    Closed,
    /// A status code and this body.
    With(u16, String),
    /// A redirect to this URL.
    Redirect(String),
    /// No response, as long as the client waits.
    Never,
}

impl TicketAnswer {
    /// Returns the response of an on-call server while this user is on call.
    #[must_use]
    pub fn on_call(user: &str) -> Self {
        let entry = json!({
            "user": {"id": "PT23IWX", "type": "user", "email": user},
            "schedule": {"id": "PI7DH85", "type": "schedule_reference"},
            "escalation_level": 1,
        });
        let page = json!({"oncalls": [entry], "limit": 25, "offset": 0, "more": false});
        Self::With(200, page.to_string())
    }
}

/// The ticket server.
#[derive(Clone)]
pub struct TicketServer {
    address: String,
    answer: Arc<Mutex<TicketAnswer>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl TicketServer {
    /// Starts a server.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(answer: TicketAnswer) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = Self {
            address: listener.local_addr()?.to_string(),
            answer: Arc::new(Mutex::new(answer)),
            asked: Arc::default(),
        };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        Ok(server)
    }

    /// Sets the response from now on.
    pub fn answer(&self, answer: TicketAnswer) {
        *self.answer.lock() = answer;
    }

    /// Returns the heads of the requests that it received.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    /// Returns its URL with this path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns a ticket check that asks the server each second, and evaluates `state`.
    #[must_use]
    pub fn check(&self, failure_policy: &str) -> Value {
        json!({
            "url": self.url("/issue/{ticket}?fields=state"),
            "accept": "status == 200 && body.state == 'open'",
            "timeout": "1s", "interval": "1s", "failurePolicy": failure_policy,
        })
    }

    /// Returns an on-call check that asks the server each second, in the form of PagerDuty's list of on-calls. The query
    /// has the user, by which a test distinguishes queries.
    #[must_use]
    pub fn on_call_check(&self, failure_policy: &str) -> Value {
        let query = "schedule_ids%5B%5D=PI7DH85&include%5B%5D=users&for={user}";
        json!({
            "url": self.url(&format!("/oncalls?{query}")),
            "accept": "status == 200 && body.oncalls.exists(one, one.user.email == requester.user)",
            "timeout": "1s", "interval": "1s", "failurePolicy": failure_policy,
        })
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        while let Ok(1..) = stream.read_buf(&mut bytes).await {
            let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
                continue;
            };
            let head: Vec<u8> = bytes.drain(..end + 4).collect();
            self.asked
                .lock()
                .push(String::from_utf8_lossy(&head).into_owned());
            let answer = self.answer.lock().clone();
            let (code, more, body) = match answer {
                TicketAnswer::Open => (200, String::new(), r#"{"state": "open"}"#.to_owned()),
                TicketAnswer::Closed => (200, String::new(), r#"{"state": "closed"}"#.to_owned()),
                TicketAnswer::With(code, body) => (code, String::new(), body),
                TicketAnswer::Redirect(to) => (302, format!("location: {to}\r\n"), String::new()),
                TicketAnswer::Never => continue,
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {code} So\r\n{more}content-length: {length}\r\n\r\n");
            let written = stream.write_all(format!("{head}{body}").as_bytes()).await;
            if written.is_err() {
                return;
            }
        }
    }
}

/// Returns the options of an operator with these checks, by their names; it may call servers on loopback by
/// address.
#[must_use]
pub fn ticket_checks(checks: &Value) -> Options {
    let told = json!({"checks": checks, "allowedHosts": ["127.0.0.1"]});
    Options::default().set("tickets", told)
}

/// Returns a template that requires a change ticket.
#[must_use]
pub fn ticket_template(
    name: &str,
    pattern: Option<&str>,
    check: Option<&str>,
) -> ExecAccessTemplate {
    let mut template = exec_template(name, TargetKind::Deployment, WORKLOAD);
    template.spec.access_config.ticket = Some(TicketConfig {
        pattern: pattern.map(ToOwned::to_owned),
        check: check.map(ToOwned::to_owned),
    });
    template
}
