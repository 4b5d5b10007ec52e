//! Requests about open sessions: their paths, options and responses. The API server authorizes them by RBAC:
//! `gates/sessions` (get: list or read sessions, delete: end a session) and `gates/log` (get: watch a session). The
//! subresource for watching has the name `log`, since the API server does not limit the duration of requests with this
//! name.

use jiff::Timestamp;
use oz_api::ModerationConfig;
use oz_core::connect::Refusal;
use oz_core::gate::of_request;
use serde::{Deserialize, Serialize};

use super::path::read_request;
use crate::recording::SessionKey;

/// The subresource with the open sessions of a request.
pub const SESSIONS: &str = "sessions";
/// The subresource for watching a session.
pub const WATCHED: &str = "log";
/// The maximum length of the reason for ending a session, in characters.
pub const MAX_REASON: usize = 256;
/// The query option with the reason for ending a session.
pub const REASON: &str = "reason";

/// A request about open sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Live {
    /// The list of the open sessions of a request.
    List {
        /// The namespace of the request.
        namespace: String,
        /// The name of the request.
        request: String,
    },
    /// One session: its state, or its end by the method DELETE.
    One(SessionKey),
    /// The stream of one session, from the time of the request.
    Watch(SessionKey),
}

impl Live {
    /// Returns the namespace and the name of the request.
    #[must_use]
    pub fn request(&self) -> (&str, &str) {
        match self {
            Self::List { namespace, request } => (namespace, request),
            Self::One(key) | Self::Watch(key) => (&key.namespace, &key.request),
        }
    }
}

/// Returns the path of the open sessions of a request, below the address of the API server.
#[must_use]
pub fn sessions(namespace: &str, request: &str) -> String {
    of_request(namespace, request, SESSIONS)
}

/// Returns the path of an open session, below the address of the API server.
#[must_use]
pub fn session(key: &SessionKey) -> String {
    format!("{}/{}", sessions(&key.namespace, &key.request), key.session)
}

/// Returns the path for watching a session, below the address of the API server.
#[must_use]
pub fn watched(key: &SessionKey) -> String {
    let watched = of_request(&key.namespace, &key.request, WATCHED);
    format!("{watched}/{}", key.session)
}

/// Reads the path of a request about open sessions. Returns `None` if the path has another subject, or a form that a
/// second reader could read differently.
#[must_use]
pub fn read(path: &str) -> Option<Live> {
    let (namespace, request, segments) = read_request(path)?;
    let key = |session: &str| SessionKey::read(&format!("{namespace}/{request}/{session}"));
    match segments.as_slice() {
        [SESSIONS] => Some(Live::List {
            namespace: namespace.to_owned(),
            request: request.to_owned(),
        }),
        [SESSIONS, session] => key(session).map(Live::One),
        [WATCHED, session] => key(session).map(Live::Watch),
        _ => None,
    }
}

/// Returns the reason for ending a session from the options of the query.
///
/// # Errors
/// If the reason cannot be shown to other users, or the query has another option.
pub fn reason<'a>(
    options: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<Option<String>, Refusal> {
    let mut reason = None;
    for (name, value) in options {
        if name != REASON || reason.is_some() {
            return Err(Refusal::new(
                "OptionUnknown",
                format!("the termination of a session has one option, {REASON}; remove {name:?}"),
            ));
        }
        let length = value.chars().count();
        if length == 0 || length > MAX_REASON || value.chars().any(char::is_control) {
            return Err(Refusal::new(
                "QueryMalformed",
                format!("the {REASON} must be one line of at most {MAX_REASON} letters"),
            ));
        }
        reason = Some(value.to_owned());
    }
    Ok(reason)
}

/// Returns the denial for a session that a user ended; `by` is the name of that user.
#[must_use]
pub fn ended(by: &str, reason: Option<&str>) -> Refusal {
    let message = match reason {
        Some(why) => format!("{by} terminated this session: {why}"),
        None => format!("{by} terminated this session"),
    };
    Refusal::new("EndedByUser", message)
}

/// Returns the notice for the user of a session when a viewer starts or stops to watch the session.
#[must_use]
pub fn notice(viewer: &str, begins: bool) -> String {
    if begins {
        format!("{viewer} watches this session")
    } else {
        format!("{viewer} stopped watching this session")
    }
}

/// Open sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listing {
    /// The sessions, in the order in which they were opened.
    pub sessions: Vec<Session>,
    /// The reasons why the list is incomplete, such as a replica that did not respond.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
}

impl Listing {
    /// Adds the sessions of another replica.
    pub fn merge(&mut self, other: Self) {
        self.sessions.extend(other.sessions);
        self.sessions
            .sort_by(|one, other| one.session.cmp(&other.session));
        self.sessions
            .dedup_by(|one, other| one.session == other.session);
        self.incomplete.extend(other.incomplete);
    }
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// `NAMESPACE/REQUEST/SESSION`.
    pub session: String,
    /// The UID of the request; empty from a gate of an earlier release.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_uid: String,
    /// The user of the session.
    pub user: String,
    /// The name of the pod.
    pub pod: String,
    /// The name of the container, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// `exec`, `attach`, `portforward` or `log`.
    pub way: String,
    /// The command, as far as the template permits its recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The digest of the complete command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_digest: Option<String>,
    /// The time at which the session was opened.
    pub opened_at: Timestamp,
    /// The time since which no data was sent in either direction.
    pub idle_since: Timestamp,
    /// The expiry of the access.
    pub until: Timestamp,
    /// The number of bytes from the user.
    pub bytes_in: u64,
    /// The number of bytes to the user.
    pub bytes_out: u64,
    /// True if the session is recorded.
    pub recorded: bool,
    /// True if the session can be watched.
    pub watchable: bool,
    /// The viewers of the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watchers: Vec<Watcher>,
    /// The replica of the gate that carries the session.
    pub replica: String,
    /// The state of the data stream in the session.
    #[serde(default)]
    pub state: State,
    /// The viewers that the session requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moderation: Option<ModerationConfig>,
}

/// The state of the data stream in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum State {
    /// Data is forwarded.
    #[default]
    Open,
    /// The session opens when enough viewers watch it.
    Waiting,
    /// Data is not forwarded until enough viewers watch again.
    Paused,
}

/// A viewer of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watcher {
    /// The user's name.
    pub user: String,
    /// The time since which the viewer has watched the session.
    pub since: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(session: &str) -> SessionKey {
        SessionKey::read(&format!("default/mine/{session}")).unwrap()
    }

    #[test]
    fn a_path_is_written_in_one_way_and_nothing_else_is_read() {
        let one = key("20261126t004500123z-oz-gate-0-7");
        let list = Live::List {
            namespace: "default".to_owned(),
            request: "mine".to_owned(),
        };
        assert_eq!(list.request(), ("default", "mine"));
        for (path, expected) in [
            (sessions("default", "mine"), Some(list)),
            (session(&one), Some(Live::One(one.clone()))),
            (watched(&one), Some(Live::Watch(one))),
        ] {
            assert_eq!(read(&path), expected, "{path}");
        }
        let base = "/apis/gate.oz.wizardofoz.co/v1alpha1/namespaces/default/gates/mine";
        for rest in [
            "/log",
            "/sessions/",
            "/sessions/..",
            "/sessions/%2e%2e",
            "/sessions/a/b",
            "/sessions/A",
            "/sessions/a b",
            "/sessions/a\u{1b}[2J",
            "/log/a/",
            "//sessions",
            "/proxy/sessions",
            "",
        ] {
            assert_eq!(read(&format!("{base}{rest}")), None, "{rest}");
        }
        assert_eq!(
            read(&format!("{base}/sessions").replace("mine", "..")),
            None
        );
    }

    #[test]
    fn a_reason_is_one_line_that_others_can_be_shown() {
        let read = |options: &[(&'static str, &'static str)]| reason(options.iter().copied());
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(
            read(&[("reason", "it is late")]),
            Ok(Some("it is late".to_owned()))
        );
        for options in [
            &[("reason", "")][..],
            &[("reason", "a\r\nb")],
            &[("reason", "\u{1b}[2J")],
            &[("reason", "a"), ("reason", "b")],
            &[("force", "true")],
        ] {
            assert!(read(options).is_err(), "{options:?}");
        }
        let long: &'static str = "x".repeat(MAX_REASON + 1).leak();
        assert!(read(&[("reason", long)]).is_err());
        let told = ended("bob", Some("it is late")).message;
        assert_eq!(told, "bob terminated this session: it is late");
    }

    #[test]
    fn sessions_of_several_replicas_form_one_list() {
        let session = |name: &str| Session {
            session: format!("default/mine/{name}"),
            request_uid: "uid-of-mine".to_owned(),
            user: "alice".to_owned(),
            pod: "web".to_owned(),
            container: None,
            way: "exec".to_owned(),
            command: Vec::new(),
            command_digest: None,
            opened_at: Timestamp::UNIX_EPOCH,
            idle_since: Timestamp::UNIX_EPOCH,
            until: Timestamp::UNIX_EPOCH,
            bytes_in: 0,
            bytes_out: 0,
            recorded: false,
            watchable: true,
            watchers: Vec::new(),
            replica: "one".to_owned(),
            state: State::Open,
            moderation: None,
        };
        let mut listing = Listing {
            sessions: vec![session("b")],
            incomplete: Vec::new(),
        };
        listing.merge(Listing {
            sessions: vec![session("a"), session("b")],
            incomplete: vec!["10.0.0.1: no answer".to_owned()],
        });
        let names: Vec<_> = listing
            .sessions
            .iter()
            .map(|one| one.session.as_str())
            .collect();
        assert_eq!(names, ["default/mine/a", "default/mine/b"]);
        assert_eq!(listing.incomplete.len(), 1);
    }
}
