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
use super::requests::{NamedRequests, SessionRequests};
use crate::cluster::Cluster;

type Result<T, E = SessionError> = std::result::Result<T, E>;

/// Lists the open sessions of one request (by name or UID), or of all requests through the gate that the user may list.
/// Each reason why the list is incomplete is in it once.
///
/// # Errors
/// The text names no request, or the gate refuses.
pub async fn list(cluster: &Cluster, request: Option<&str>, everywhere: bool) -> Result<Listing> {
    let Some(word) = request else {
        return list_requests(cluster, through_gate(cluster, everywhere).await?).await;
    };
    let named = NamedRequests::find(cluster, &parse_request_name(word)?).await?;
    let mut found = list_requests(cluster, BTreeSet::from([named.place()])).await?;
    found.sessions.retain(|session| named.has(session));
    Ok(found)
}

/// Lists the open sessions of these requests, by namespace and name.
async fn list_requests(cluster: &Cluster, requests: BTreeSet<(String, String)>) -> Result<Listing> {
    let mut found = Listing::default();
    for (namespace, request) in requests {
        found.merge(open(cluster, &namespace, &request).await?);
    }
    // A replica that does not respond fails for each request.
    found.incomplete.sort_unstable();
    found.incomplete.dedup();
    Ok(found)
}

/// Returns the session of `REQUEST` (the last one that is open) or `REQUEST/SESSION`. REQUEST is a name or a UID.
///
/// # Errors
/// The text names no session, no session is open, the name stands for several requests, or the gate refuses.
pub async fn find(cluster: &Cluster, text: &str) -> Result<SessionKey> {
    let namespace = &cluster.namespace;
    let (word, session) = match text.split_once('/') {
        Some((word, session)) => (word, Some(session)),
        None => (text, None),
    };
    let named = NamedRequests::find(cluster, &parse_request_name(word)?).await?;
    let name = &named.name;
    if let (Some(session), None) = (session, &named.uid) {
        let key = SessionKey::read(&format!("{namespace}/{name}/{session}"));
        return key.ok_or_else(|| malformed(text));
    }
    let mut listing = open(cluster, namespace, name).await?;
    let key = session.map(|session| format!("{namespace}/{name}/{session}"));
    listing.sessions.retain(|one| {
        let is_named = key.as_ref().is_none_or(|key| one.session == *key);
        is_named && named.has(one)
    });
    last(namespace, name, listing)
}

/// Returns the last open session of the requests of a name.
fn last(namespace: &str, name: &str, listing: Listing) -> Result<SessionKey> {
    let keys = listing.sessions.iter().filter_map(|session| {
        let key = SessionKey::read(&session.session)?;
        Some((key, session.request_uid.as_str()))
    });
    let keys: Vec<_> = keys.collect();
    let mut requests = SessionRequests::default();
    for (key, uid) in keys.iter().filter(|(_, uid)| !uid.is_empty()) {
        requests.add_session(key.clone(), uid);
    }
    requests.is_one(namespace, name)?;
    match keys.into_iter().next_back() {
        Some((key, _)) => Ok(key),
        None => Err(SessionError::NotOpen {
            namespace: namespace.to_owned(),
            request: name.to_owned(),
            incomplete: listing.incomplete,
        }),
    }
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

    fn open_session(session: &str, uid: &str) -> Session {
        let value = serde_json::json!({
            "session": format!("shop/mine/{session}"), "requestUid": uid, "user": "alice",
            "pod": "web", "way": "exec", "openedAt": "2026-01-01T12:00:00Z",
            "idleSince": "2026-01-01T12:00:00Z", "until": "2026-01-01T13:00:00Z",
            "bytesIn": 0, "bytesOut": 0, "recorded": true, "watchable": true, "replica": "gate-0",
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn open_session_of_a_name_is_the_last_of_one_request() {
        type Row<'a> = (&'a [(&'a str, &'a str)], Result<&'a str, &'a str>);
        let rows: [Row<'_>; 4] = [
            (
                &[],
                Err("no session of request mine in namespace shop is open"),
            ),
            (&[("1", "a"), ("2", "a")], Ok("shop/mine/2")),
            (
                &[("1", "a"), ("2", "b")],
                Err("mine in namespace shop is the name of 2 requests"),
            ),
            // A gate of an earlier release names no UIDs.
            (&[("1", ""), ("2", "")], Ok("shop/mine/2")),
        ];
        for (number, (sessions, expected)) in rows.into_iter().enumerate() {
            let sessions = sessions
                .iter()
                .map(|(session, uid)| open_session(session, uid));
            let listing = Listing {
                sessions: sessions.collect(),
                incomplete: Vec::new(),
            };
            let found = last("shop", "mine", listing);
            match (found, expected) {
                (Ok(key), Ok(expected)) => assert_eq!(key.to_string(), expected, "{number}"),
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().starts_with(expected), "{number}: {error}");
                }
                (found, expected) => panic!("{number}: {found:?} in place of {expected:?}"),
            }
        }
    }

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        assert_eq!(parse_request_name("mine").unwrap(), "mine");
        for text in ["", "..", "a/b", "a?b", "A", "\u{1b}[2J"] {
            assert!(parse_request_name(text).is_err(), "{text:?}");
        }
    }
}
