//! A server that receives the requests that oz sends to others, and answers as a test defines.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The response of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
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
pub struct Received {
    /// The request line and the headers.
    pub head: String,
    /// The text of the body.
    pub raw: String,
    /// The body, which is JSON.
    pub body: Value,
}

impl Received {
    /// Returns the value of a header.
    #[must_use]
    pub fn header(&self, wanted: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let found = name.eq_ignore_ascii_case(wanted);
            found.then(|| value.trim().to_owned())
        })
    }
}

/// The server, with the requests that it received.
#[derive(Clone, Debug)]
pub struct Server {
    address: SocketAddr,
    answers: Arc<Mutex<Answers>>,
    taken: Arc<Mutex<Vec<Received>>>,
    refused: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    /// Starts a server on loopback.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(answers: Answers) -> Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), answers).await
    }

    /// Starts a server at an address of this machine; port 0 is any free one.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub async fn start_at(address: SocketAddr, answers: Answers) -> Result<Self> {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("failed to listen at {address}"))?;
        let server = Self {
            address: listener.local_addr()?,
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

    /// Returns its address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its URL with this path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sets the response from now on.
    pub fn answer(&self, answers: Answers) {
        *self.answers.lock() = answers;
    }

    /// Returns the requests that it answered with success.
    #[must_use]
    pub fn taken(&self) -> Vec<Received> {
        self.taken.lock().clone()
    }

    /// Returns the requests that it did not answer with success.
    #[must_use]
    pub fn refused(&self) -> Vec<Received> {
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
