//! Open sessions, as the gate reports them: listing, watching and ending them.

use std::collections::BTreeSet;

use futures::TryStreamExt as _;
use http::Method;
use http_body_util::BodyDataStream;
use kube::api::ListParams;
use kube::client::Body;
use oz_core::connect::Refusal;
use oz_core::for_each_kind;
use oz_core::kinds::AccessRequest as _;
use oz_gating::live::{self, Listing, Session};
use oz_gating::recording::{About, Code, Event, Header, MAX_LINE, SessionKey};

use super::error::{BreakOff, SessionError};
use super::gate;
use super::harmless::Harmless;
use crate::cluster::Cluster;

type Result<T, E = SessionError> = std::result::Result<T, E>;

/// Lists the open sessions of one request, or of all requests through the gate that the user may list. Each reason why
/// the list is incomplete is in it once.
///
/// # Errors
/// The text names no request, or the gate refuses.
pub async fn list(cluster: &Cluster, request: Option<&str>, everywhere: bool) -> Result<Listing> {
    let requests = match request {
        Some(name) => BTreeSet::from([(cluster.namespace.clone(), parse_request_name(name)?)]),
        None => through_gate(cluster, everywhere).await?,
    };
    let mut found = Listing::default();
    for (namespace, request) in requests {
        found.merge(open(cluster, &namespace, &request).await?);
    }
    // A replica that does not respond fails for each request.
    found.incomplete.sort_unstable();
    found.incomplete.dedup();
    Ok(found)
}

/// Returns the session of `REQUEST` (the last one that is open) or `REQUEST/SESSION`.
///
/// # Errors
/// The text names no session, no session is open, or the gate refuses.
pub async fn find(cluster: &Cluster, text: &str) -> Result<SessionKey> {
    let namespace = &cluster.namespace;
    if text.contains('/') {
        return SessionKey::read(&format!("{namespace}/{text}")).ok_or_else(|| malformed(text));
    }
    let listing = open(cluster, namespace, &parse_request_name(text)?).await?;
    let last = listing
        .sessions
        .last()
        .and_then(|last| SessionKey::read(&last.session));
    last.ok_or_else(|| SessionError::NotOpen {
        namespace: namespace.clone(),
        request: text.to_owned(),
        incomplete: listing.incomplete,
    })
}

/// Returns a session.
///
/// # Errors
/// The session is not open, or the gate refuses.
pub async fn get(cluster: &Cluster, key: &SessionKey) -> Result<Session> {
    parse(&ask(cluster, Method::GET, &live::session(key)).await?)
}

/// Checks the reason for ending a session.
///
/// # Errors
/// The reason cannot be shown to other users.
pub fn check_reason(reason: &str) -> Result<(), Refusal> {
    live::reason([(live::REASON, reason)].into_iter()).map(drop)
}

/// Ends a session, and returns it.
///
/// # Errors
/// The session is not open, or the gate refuses.
pub async fn end(cluster: &Cluster, key: &SessionKey, reason: Option<&str>) -> Result<Session> {
    let mut path = live::session(key);
    if let Some(reason) = reason {
        path.push_str(&format!("?{}={}", live::REASON, encoded(reason)));
    }
    parse(&ask(cluster, Method::DELETE, &path).await?)
}

/// Begins to watch a session.
///
/// # Errors
/// The session is not open or cannot be watched, or the gate refuses.
pub async fn watch(cluster: &Cluster, key: &SessionKey) -> Result<Watch> {
    let path = live::watched(key);
    let answer = gate::send(cluster, Method::GET, &path).await;
    let answer = answer.map_err(|error| SessionError::ask(&path, error))?;
    Ok(Watch {
        key: key.clone(),
        stream: BodyDataStream::new(answer.into_body()),
        begun: Vec::new(),
        harmless: Harmless::default(),
        tty: None,
    })
}

/// A watched session.
pub struct Watch {
    key: SessionKey,
    stream: BodyDataStream<Body>,
    /// The line that is not complete yet.
    begun: Vec<u8>,
    harmless: Harmless,
    /// True for a session on a terminal; `None` as long as that is unknown.
    tty: Option<bool>,
}

/// A piece of a watched session.
pub enum SessionEvent {
    /// The description of the session, which comes first.
    Begin(Box<About>),
    /// Output, harmless for a terminal.
    Output(String),
    /// A message of oz about the session.
    Notice(String),
}

impl Watch {
    /// Returns the next bytes as the gate sends them; `None` at the end of the session.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn next_bytes(&mut self) -> Result<Option<Vec<u8>>> {
        let next = self.stream.try_next().await;
        let next = next.map_err(|error| self.broken_off(BreakOff::Connection(error.into())))?;
        Ok(next.map(|bytes| bytes.to_vec()))
    }

    /// Returns the next piece; `None` at the end of the session.
    ///
    /// # Errors
    /// The connection broke, or the data is malformed.
    pub async fn next(&mut self) -> Result<Option<SessionEvent>> {
        loop {
            while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.begun.drain(..=end).collect();
                line.pop();
                let seen = self.line(&line);
                if let Some(seen) = seen.map_err(|error| self.broken_off(error.into()))? {
                    return Ok(Some(seen));
                }
            }
            if self.begun.len() > MAX_LINE {
                return Err(self.broken_off(BreakOff::LongLine));
            }
            match self.next_bytes().await? {
                Some(bytes) => self.begun.extend_from_slice(&bytes),
                None if self.tty.is_none() => return Err(self.broken_off(BreakOff::Silence)),
                None => return Ok(None),
            }
        }
    }

    /// Returns the error about the end of the data.
    pub fn broken_off(&self, error: BreakOff) -> SessionError {
        SessionError::BrokenOff {
            key: Box::new(self.key.clone()),
            error,
        }
    }

    fn line(&mut self, bytes: &[u8]) -> Result<Option<SessionEvent>, serde_json::Error> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let Some(tty) = self.tty else {
            let header: Header = serde_json::from_slice(bytes)?;
            self.tty = Some(header.oz.tty);
            return Ok(Some(SessionEvent::Begin(Box::new(header.oz))));
        };
        let Event(_, code, data) = serde_json::from_slice(bytes)?;
        let output = match code {
            Code::Output if tty => data,
            // Without a terminal, a line begins where the preceding line ended.
            Code::Output => data.replace('\n', "\r\n"),
            Code::Mark => return Ok(Some(SessionEvent::Notice(data))),
            Code::Input | Code::Resize | Code::Bytes => return Ok(None),
        };
        Ok(Some(SessionEvent::Output(self.harmless.filter(&output))))
    }
}

/// Returns the name of a request, if it may be part of a path.
fn parse_request_name(text: &str) -> Result<String> {
    let key = SessionKey::read(&format!("x/{text}/x")).ok_or_else(|| malformed(text))?;
    Ok(key.request)
}

fn malformed(text: &str) -> SessionError {
    SessionError::Malformed {
        text: text.to_owned(),
        is_open: true,
    }
}

/// Returns the requests that lead through the gate, by namespace and name.
async fn through_gate(cluster: &Cluster, everywhere: bool) -> Result<BTreeSet<(String, String)>> {
    let mut found = BTreeSet::new();
    for_each_kind!(requests R => {
        let api = cluster.api_in::<R>(everywhere);
        let all = cluster.answer(api.list(&ListParams::default())).await;
        for mut request in all.map_err(SessionError::Cluster)?.items {
            if request.status().is_some_and(|status| status.gate) {
                let metadata = std::mem::take(kube::Resource::meta_mut(&mut request));
                found.extend(metadata.namespace.zip(metadata.name));
            }
        }
    });
    Ok(found)
}

async fn open(cluster: &Cluster, namespace: &str, request: &str) -> Result<Listing> {
    let path = live::sessions(namespace, request);
    let bytes = ask(cluster, Method::GET, &path).await?;
    serde_json::from_slice(&bytes).map_err(|error| SessionError::Open {
        request: request.to_owned(),
        error,
    })
}

fn parse(bytes: &[u8]) -> Result<Session> {
    serde_json::from_slice(bytes).map_err(SessionError::Description)
}

async fn ask(cluster: &Cluster, method: Method, path: &str) -> Result<Vec<u8>> {
    let answer = gate::send(cluster, method, path).await;
    let answer = answer.map_err(|error| SessionError::ask(path, error))?;
    let bytes = gate::read(answer).await;
    bytes.map_err(|error| SessionError::read(path, error))
}

/// Encodes a text for a query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let bytes = text.bytes().map(|byte| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_goes_into_a_query_whole() {
        assert_eq!(
            encoded("it's late & ‹so›"),
            "it%27s%20late%20%26%20%E2%80%B9so%E2%80%BA"
        );
    }

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        assert_eq!(parse_request_name("mine").unwrap(), "mine");
        for text in ["", "..", "a/b", "a?b", "A", "\u{1b}[2J"] {
            assert!(parse_request_name(text).is_err(), "{text:?}");
        }
    }
}
