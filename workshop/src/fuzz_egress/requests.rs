//! Requests, which pass hyper's server, the decisions and hyper's client, as in the proxy.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use oz_api::harness::wire::{CredentialPlace, HostGrant, InjectedCredential, RunGrants};
use oz_egress::grants::Granted;
use oz_egress::request::{Connection, Pass, Refused, decide, forward, route};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::runtime::Runtime;

use crate::random::Xorshift;

const VALUE: &str = "sk-real-value";
const HOST: &str = "api.anthropic.com";
/// The size of a pipe in bytes.
const PIPE: usize = 64 * 1024;

/// The part of a placeholder before its last digit, in both credentials.
const BEGIN: &str = "pdk-00000000000000000000000000000000000000000000000";

const LINES: [&str; 36] = [
    "GET / HTTP/1.1",
    "POST /v1/messages?beta=true HTTP/1.1",
    "GET https://api.anthropic.com/ HTTP/1.1",
    "GET https://api.anthropic.com@evil.org/ HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "GET /?key=PLACEHOLDER HTTP/1.1",
    "GET /?api-token=PLACEHOLDER HTTP/1.0",
    "GET /?api-token=ENCODED&a=b HTTP/1.1",
    "Host: api.anthropic.com",
    "Host: evil.org",
    "Host: api.anthropic.com:443",
    "X-Api-Key: PLACEHOLDER",
    "X-Api-Key: UPPER",
    "X-Api-Key: ENCODED",
    "X-Api-Key: own",
    "X-Other: UPPER",
    "X-Other: ENCODED",
    "Authorization: Bearer PLACEHOLDER",
    "Authorization: Basic PLACEHOLDER",
    "Connection: close, x-api-key",
    "Connection: upgrade",
    "Connection: content-length",
    "Upgrade: websocket",
    "Upgrade: h2c",
    "Content-Length: 3",
    "Content-Length: 300",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding : chunked",
    "Cookie: a=b",
    "X-Forwarded-For: 10.0.0.1",
    "Trailer: x-api-key",
    "TE: trailers",
    "Expect: 100-continue",
    "X-Stainless-Lang: js",
    " folded: PLACEHOLDER",
];
const WORDS: [&[u8]; 8] = [
    b"\r\n",
    b"\n",
    b"\0",
    b"\r\n\r\nGET / HTTP/1.1\r\n",
    b"%",
    b":",
    b"pdk-",
    b"\x80",
];

/// The grants for the requests, and the runtime that serves them.
pub(crate) struct Requests {
    runtime: Runtime,
    granted: Arc<Granted>,
}

/// The results of the requests of one connection: the bytes that the upstream of each got, or the refusal.
type Results = Arc<Mutex<Vec<Result<Vec<u8>, Refused>>>>;

impl Requests {
    pub(crate) fn new() -> Result<Self> {
        let credential = |name: &str, digit: char, place| InjectedCredential {
            name: name.to_owned(),
            placeholder: format!("{BEGIN}{digit}"),
            hosts: vec![HOST.to_owned()],
            place,
            version: String::new(),
        };
        let query = CredentialPlace::Query {
            name: "api-token".to_owned(),
        };
        let grants = RunGrants {
            hosts: vec![HostGrant {
                host: HOST.to_owned(),
                ports: vec![443],
            }],
            credentials: vec![
                credential("KEY", 'a', CredentialPlace::Anthropic),
                credential("QUERY", 'b', query),
            ],
            ..RunGrants::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let granted = Arc::new(Granted::parse(&grants)?);
        Ok(Self { runtime, granted })
    }

    pub(crate) fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Returns a request, or several, that may be changed.
    pub(crate) fn generate(&self, random: &mut Xorshift) -> Vec<u8> {
        let mut text = String::new();
        for _ in 0..=random.below(2) {
            text.push_str(LINES[random.below(8)]);
            text.push_str("\r\nHost: api.anthropic.com\r\n");
            for _ in 0..random.below(5) {
                text.push_str(random.one(&LINES[8..]).unwrap_or(&""));
                text.push_str("\r\n");
            }
            text.push_str(
                random
                    .one(&[
                        "\r\n",
                        "\r\nabc",
                        "\r\n3\r\nabc\r\n0\r\nX-Api-Key: own\r\n\r\n",
                    ])
                    .unwrap_or(&""),
            );
        }
        let digit = *random.one(&['a', 'b', 'c']).unwrap_or(&'a');
        let placeholder = format!("{BEGIN}{digit}");
        let text = text
            .replace("PLACEHOLDER", &placeholder)
            .replace("UPPER", &placeholder.to_uppercase())
            .replace("ENCODED", &placeholder.replace('-', "%2D"));
        let mut bytes = text.into_bytes();
        if random.below(3) == 0 {
            super::mutate(random, &mut bytes, &WORDS);
        }
        bytes
    }

    /// Checks the requests of one connection. Returns whether one was forwarded.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<bool> {
        let results = self.runtime.block_on(serve(&self.granted, bytes))?;
        let mut is_forwarded = false;
        for result in &*results.lock() {
            match result {
                Ok(bytes) => {
                    is_forwarded = true;
                    check_forwarded(bytes)?;
                }
                Err(refused) => ensure!(
                    !refused.status.is_success() && refused.message.len() < 1024,
                    "{refused:?}"
                ),
            }
        }
        Ok(is_forwarded)
    }
}

/// Serves the bytes of one connection until it ends.
async fn serve(granted: &Arc<Granted>, bytes: &[u8]) -> Result<Results> {
    let (mut client, server) = duplex(PIPE);
    client.write_all(bytes).await?;
    client.shutdown().await?;
    let results = Results::default();
    let service = service_fn(|request| {
        let (granted, results) = (granted.clone(), results.clone());
        async move {
            let result = proxied(&granted, request).await;
            let status = match &result {
                Ok(_) => StatusCode::OK,
                Err(refused) => refused.status,
            };
            results.lock().push(result);
            let mut response = Response::new(Empty::<Bytes>::new());
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), service);
    // A connection of malformed bytes ends with an error.
    let _ = connection.await;
    Ok(results)
}

/// Returns the bytes that the upstream of a request gets.
async fn proxied(granted: &Granted, request: Request<Incoming>) -> Result<Vec<u8>, Refused> {
    let connection = Connection {
        host: Some(HOST),
        port: 443,
        tls: true,
    };
    let (mut head, body) = request.into_parts();
    let route = route(&connection, &head)?;
    let lent = match decide(granted, &connection, &route, &head)? {
        Pass::Plain => None,
        Pass::Inject { credential } => granted.credential(&credential).map(|one| (one, VALUE)),
    };
    forward(granted, &route, &mut head, lent)?;
    let (near, mut far) = duplex(PIPE);
    let sent = async {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near))
            .await
            .ok()?;
        let response = sender.send_request(Request::from_parts(head, body));
        // The upstream closes the connection after the head: its response is not of interest here.
        let _ = tokio::join!(response, connection);
        Some(())
    };
    let received = async move {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            match far.read_u8().await {
                Ok(byte) => bytes.push(byte),
                Err(_) => break,
            }
        }
        bytes
    };
    let (_, bytes) = tokio::join!(sent, received);
    Ok(bytes)
}

/// Checks the head of a request as the upstream gets it.
fn check_forwarded(bytes: &[u8]) -> Result<()> {
    // A head that hyper's client refuses is not sent.
    if bytes.is_empty() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let head = text
        .strip_suffix("\r\n\r\n")
        .context("the head has no end")?;
    let decoded = head.replace("%2d", "-");
    // Without its last digit, it is none: an input may be cut there.
    let is_whole = |digit: &char| decoded.contains(&format!("{BEGIN}{digit}"));
    ensure!(
        !['a', 'b', 'c'].iter().any(is_whole),
        "a placeholder is forwarded: {text}"
    );
    ensure!(!head.contains("\n\n") && !head.contains('\0'), "{text:?}");
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let target = line.split(' ').nth(1).unwrap_or_default();
    ensure!(
        target.starts_with('/') || target == "*",
        "not in origin form: {line}"
    );
    let (mut hosts, mut lengths) = (0, 0);
    for line in lines {
        let (name, value) = line.split_once(':').context("a line is no header")?;
        match name {
            "host" => {
                ensure!(value.trim().trim_end_matches(":443") == HOST, "{line}");
                hosts += 1;
            }
            "content-length" | "transfer-encoding" => lengths += 1,
            "connection" => ensure!(value.trim() == "upgrade", "{line}"),
            "upgrade" => ensure!(value.trim() == "websocket", "{line}"),
            "x-api-key" => ensure!([VALUE, ""].contains(&value.trim()), "{line}"),
            "te" | "trailer" | "expect" | "keep-alive" => bail!("{line}"),
            _ => {}
        }
    }
    ensure!(
        hosts == 1 && lengths <= 1,
        "{hosts} hosts, {lengths} lengths: {text}"
    );
    ensure!(head.matches(VALUE).count() <= 1, "the value twice: {text}");
    Ok(())
}
