//! A server that receives the requests that oz sends to others, and answers as a test defines.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stop where they fail, too"
)]

use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The response of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// This status without a body.
    With(u16),
    /// A page of HTML with a status of failure.
    Html,
    /// The place of a message, as the API of Slack responds.
    Slack,
    /// A redirect to itself.
    Redirect,
    /// No response, as long as the client waits.
    Never,
}

/// A request as the server received it.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) raw: String,
    pub(crate) body: Value,
}

impl Received {
    /// Returns the value of a header.
    pub(crate) fn header(&self, wanted: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let found = name.eq_ignore_ascii_case(wanted);
            found.then(|| value.trim().to_owned())
        })
    }
}

/// The server, with the requests that it received.
#[derive(Clone)]
pub(crate) struct Server {
    address: String,
    answers: Arc<Mutex<Answers>>,
    taken: Arc<Mutex<Vec<Received>>>,
    refused: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    pub(crate) async fn start(answers: Answers) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = Self {
            address: listener.local_addr()?.to_string(),
            answers: Arc::new(Mutex::new(answers)),
            taken: Arc::default(),
            refused: Arc::default(),
        };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        Ok(server)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn answer(&self, answers: Answers) {
        *self.answers.lock() = answers;
    }

    /// Returns the requests that it answered with success.
    pub(crate) fn taken(&self) -> Vec<Received> {
        self.taken.lock().clone()
    }

    /// Returns the requests that it did not answer with success.
    pub(crate) fn refused(&self) -> Vec<Received> {
        self.refused.lock().clone()
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        while let Ok(read) = stream.read_buf(&mut bytes).await {
            if read == 0 {
                return;
            }
            while let Some((received, rest)) = request(&bytes) {
                bytes = rest;
                let answers = *self.answers.lock();
                let into = match answers {
                    Answers::With(200..=299) | Answers::Slack => &self.taken,
                    _ => &self.refused,
                };
                into.lock().push(received);
                let answer = match answers {
                    Answers::With(status) => format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\n\r\n"),
                    Answers::Html => "HTTP/1.1 500 So\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>".into(),
                    Answers::Slack => {
                        let body = r#"{"ok":true,"channel":"C0123456789","ts":"1503435956.000247"}"#;
                        let length = body.len();
                        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
                    }
                    Answers::Redirect => {
                        let to = self.url("/elsewhere");
                        format!("HTTP/1.1 307 So\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
                    }
                    Answers::Never => continue,
                };
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Returns the first complete request, if there is one, and the bytes that follow.
fn request(bytes: &[u8]) -> Option<(Received, Vec<u8>)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut received = Received {
        head,
        raw: String::new(),
        body: Value::Null,
    };
    let length: usize = received.header("content-length")?.parse().ok()?;
    received.raw = String::from_utf8_lossy(bytes.get(end..end + length)?).into_owned();
    received.body = serde_json::from_str(&received.raw).ok()?;
    Some((received, bytes[end + length..].to_vec()))
}
