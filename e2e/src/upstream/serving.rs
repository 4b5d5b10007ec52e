//! The requests that the upstream serves, and the record of each request and connection.

use std::convert::Infallible;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _, stream};
use http::header::{CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::claude::{Reply, messages};
use super::{Connection, Received, State};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The interval of the events of `/ticks`.
const TICK: Duration = Duration::from_millis(20);
/// The size of the parts of a large body in bytes.
const PART: usize = 64 * 1024;
/// The maximum size of a body that is kept in the record, in bytes.
const MAX_RECORDED: usize = 64 * 1024;

/// An open connection; its end is recorded when the last part of it is dropped.
pub(super) struct Open {
    state: Arc<State>,
    number: usize,
    /// The name in the client's handshake; empty without TLS.
    host: String,
    tls: bool,
}

impl Open {
    pub(super) fn new(state: &Arc<State>, host: &str, tls: bool) -> Arc<Self> {
        let mut log = state.log.lock();
        let number = log.connections.len();
        log.connections.push(Connection {
            host: host.to_owned(),
            opened: Timestamp::now(),
            closed: None,
        });
        Arc::new(Self {
            state: Arc::clone(state),
            number,
            host: host.to_owned(),
            tls,
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut log = self.state.log.lock();
        if let Some(connection) = log.connections.get_mut(self.number) {
            connection.closed = Some(Timestamp::now());
        }
    }
}

/// Serves a connection to its end.
pub(super) async fn serve<S>(stream: S, open: Arc<Open>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let open = Arc::clone(&open);
        async move { Ok::<_, Infallible>(respond(request, open).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service);
    // A client may close a connection in the middle of anything.
    let _ = connection.with_upgrades().await;
}

async fn respond(mut request: Request<Incoming>, open: Arc<Open>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if request.headers().contains_key(SEC_WEBSOCKET_KEY) {
        record(&request, Vec::new(), &open);
        return web_socket(&mut request, open);
    }
    match path.as_str() {
        // Not recorded: a bench sends many of these.
        "/nothing" => return answer(StatusCode::OK, Bytes::new()),
        "/upload" => {
            let (parts, mut body) = request.into_parts();
            record(&Request::from_parts(parts, ()), Vec::new(), &open);
            let mut size = 0;
            while let Some(Ok(frame)) = body.frame().await {
                size += frame.data_ref().map_or(0, Bytes::len);
            }
            return answer(StatusCode::OK, size.to_string());
        }
        _ => {}
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await;
    let body = body
        .map(|body| body.to_bytes().to_vec())
        .unwrap_or_default();
    let request = Request::from_parts(parts, ());
    record(&request, body.clone(), &open);
    match (request.method(), path.as_str()) {
        (&Method::POST, "/v1/messages") => claude(&request, &body, &open),
        (_, "/echo") => object(StatusCode::OK, &echo(&request, &body)),
        (_, "/ticks") => ticks(open),
        (_, "/bytes") => bytes(request.uri().query().unwrap_or_default()),
        (_, "/" | "/api/hello" | "/record") => answer(StatusCode::OK, "hello\n"),
        _ => file(&open.state, &path),
    }
}

fn record<B>(request: &Request<B>, mut body: Vec<u8>, open: &Open) {
    body.truncate(MAX_RECORDED);
    let headers = request.headers().iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    open.state.log.lock().received.push(Received {
        at: Timestamp::now(),
        connection: open.number,
        host: open.host.clone(),
        tls: open.tls,
        method: request.method().to_string(),
        target: request.uri().to_string(),
        headers: headers.collect(),
        body,
    });
}

fn claude(request: &Request<()>, body: &[u8], open: &Open) -> Response<Body> {
    let key = request.headers().get("x-api-key");
    let key = key.and_then(|key| key.to_str().ok()).unwrap_or_default();
    let is_known = open.state.log.lock().keys.contains(key);
    match messages(is_known, body) {
        Reply::Object(status, value) => object(status, &value),
        Reply::Events(events) => {
            let events = events.into_iter().map(|event| {
                let kind = event["type"].as_str().unwrap_or_default();
                let text = format!("event: {kind}\ndata: {event}\n\n");
                Ok(Frame::data(Bytes::from(text)))
            });
            events_of(BodyExt::boxed_unsync(StreamBody::new(stream::iter(events))))
        }
    }
}

/// Returns a response with an event at each interval, until the client closes the connection.
fn ticks(open: Arc<Open>) -> Response<Body> {
    let start = (0_u64, tokio::time::interval(TICK), open);
    let events = stream::unfold(start, |(number, mut interval, open)| async move {
        interval.tick().await;
        let event = Frame::data(Bytes::from(format!("data: {number}\n\n")));
        Some((Ok(event), (number + 1, interval, open)))
    });
    events_of(BodyExt::boxed_unsync(StreamBody::new(events)))
}

fn events_of(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let events = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, events);
    response
}

/// Returns a body of as many bytes as the query says.
fn bytes(query: &str) -> Response<Body> {
    static ZEROES: [u8; PART] = [0; PART];
    let count: usize = query.parse().unwrap_or_default();
    let whole = std::iter::repeat_n(PART, count / PART);
    let parts = whole.chain([count % PART]).filter(|size| *size > 0);
    let parts = parts.map(|size| {
        let part = ZEROES.get(..size).unwrap_or_default();
        Ok(Frame::data(Bytes::from_static(part)))
    });
    Response::new(BodyExt::boxed_unsync(StreamBody::new(stream::iter(parts))))
}

fn echo(request: &Request<()>, body: &[u8]) -> Value {
    let headers = request
        .headers()
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]));
    json!({
        "method": request.method().as_str(),
        "target": request.uri().to_string(),
        "headers": headers.collect::<Vec<_>>(),
        "body": String::from_utf8_lossy(body),
    })
}

/// Returns a file of the served directory.
fn file(state: &State, path: &str) -> Response<Body> {
    let path = Path::new(path.trim_start_matches('/'));
    let is_below = path
        .components()
        .all(|it| matches!(it, Component::Normal(_)));
    let directory = state.log.lock().directory.clone();
    let content = directory
        .filter(|_| is_below)
        .and_then(|directory| std::fs::read(directory.join(path)).ok());
    match content {
        Some(content) => answer(StatusCode::OK, content),
        None => answer(StatusCode::NOT_FOUND, "not found\n"),
    }
}

/// Accepts a WebSocket (RFC 6455, section 4.2.2), and sends each message back.
fn web_socket(request: &mut Request<Incoming>, open: Arc<Open>) -> Response<Body> {
    let key = request.headers().get(SEC_WEBSOCKET_KEY);
    let accept = key
        .map(|key| derive_accept_key(key.as_bytes()))
        .unwrap_or_default();
    let upgrading = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let _open = open;
        let Ok(upgraded) = upgrading.await else {
            return;
        };
        let stream = TokioIo::new(upgraded);
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            let is_data = message.is_text() || message.is_binary();
            if is_data && socket.send(message).await.is_err() {
                return;
            }
        }
    });
    let mut response = answer(StatusCode::SWITCHING_PROTOCOLS, Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::try_from(accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

fn object(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = answer(status, value.to_string());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn answer(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(BodyExt::boxed_unsync(Full::new(body.into())));
    *response.status_mut() = status;
    response
}
