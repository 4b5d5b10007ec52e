//! The recorded session that a user names: by REQUEST, which means its last session, or by REQUEST/SESSION; where REQUEST
//! is the name or the UID of a request.

use std::path::Path;

use oz_gating::recording::{PartName, SessionKey};

use super::error::SessionError;
use super::identities::Identities;
use super::requests::SessionRequests;
use super::source::{Source, entries, unpacked};
use crate::names;

type Result<T> = std::result::Result<T, SessionError>;

/// The session that a user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSession {
    /// The session.
    pub key: SessionKey,
    /// True if the name of the request may stand for another request as well: the user may not read the audit trail,
    /// which has the UIDs.
    pub may_be_other: bool,
}

impl FoundSession {
    fn new(key: SessionKey) -> Self {
        let may_be_other = false;
        Self { key, may_be_other }
    }
}

impl Source {
    /// Returns the session of `REQUEST` (its last one) or `REQUEST/SESSION`. REQUEST is a name or a UID.
    ///
    /// # Errors
    /// The text names no session, the name stands for several requests, or the source cannot be read.
    pub async fn session(
        &self,
        namespace: &str,
        text: &str,
        identities: &Identities,
    ) -> Result<FoundSession> {
        let (request, session) = match text.split_once('/') {
            Some((request, session)) => (request, Some(session)),
            None => (text, None),
        };
        let of_name =
            SessionKey::read(&format!("{namespace}/{request}/{}", session.unwrap_or("x")));
        let of_name = of_name.ok_or_else(|| SessionError::Malformed {
            text: text.to_owned(),
            is_open: false,
        })?;
        if names::is_uid(request) {
            let known = self.all_requests(namespace, identities).await?;
            if let Some(key) = by_uid(&known, request, session) {
                return Ok(FoundSession::new(key));
            }
        }
        if session.is_some() {
            return Ok(FoundSession::new(of_name));
        }
        let mut keys = self.keys(namespace, request).await?;
        let known = self.requests_of(namespace, &keys, identities).await?;
        if let Some(known) = &known {
            known.is_one(namespace, request)?;
        }
        let last = keys.pop().ok_or_else(|| SessionError::NoRecording {
            namespace: namespace.to_owned(),
            request: request.to_owned(),
        })?;
        Ok(FoundSession {
            key: last,
            may_be_other: known.is_none(),
        })
    }

    /// Returns the recorded sessions of a request, in the order in which they were opened.
    async fn keys(&self, namespace: &str, request: &str) -> Result<Vec<SessionKey>> {
        let listing = self.listing(namespace, request).await?;
        let sessions = listing.sessions.iter();
        Ok(sessions
            .filter_map(|one| SessionKey::read(&one.session))
            .collect())
    }

    /// Returns the requests of these sessions of one name; `None` if the user may not read the audit trail.
    async fn requests_of(
        &self,
        namespace: &str,
        keys: &[SessionKey],
        identities: &Identities,
    ) -> Result<Option<SessionRequests>> {
        match self {
            // Without a recording, there is none of another request either.
            _ if keys.is_empty() => Ok(Some(SessionRequests::default())),
            Self::Gate(cluster) => match SessionRequests::read(cluster, namespace).await {
                Ok(known) => Ok(Some(known)),
                Err(failure) if failure.is_forbidden() => Ok(None),
                Err(failure) => Err(SessionError::Cluster(failure)),
            },
            Self::Directory(_) => Ok(Some(self.headers(keys, identities).await?)),
        }
    }

    /// Returns the requests of all sessions in a namespace.
    async fn all_requests(
        &self,
        namespace: &str,
        identities: &Identities,
    ) -> Result<SessionRequests> {
        match self {
            Self::Gate(cluster) => {
                let known = SessionRequests::read(cluster, namespace).await;
                known.map_err(SessionError::Cluster)
            }
            Self::Directory(path) => {
                let mut keys = Vec::new();
                for request in requests_in(path, namespace)? {
                    keys.extend(self.keys(namespace, &request).await?);
                }
                self.headers(&keys, identities).await
            }
        }
    }

    /// Returns the requests of sessions as the headers of their recordings name them. A header that the user cannot
    /// decrypt names none.
    async fn headers(
        &self,
        keys: &[SessionKey],
        identities: &Identities,
    ) -> Result<SessionRequests> {
        let mut known = SessionRequests::default();
        for key in keys {
            let parts = self.names(key).await?;
            let Some(first) = parts.first().and_then(|name| PartName::read(name)) else {
                continue;
            };
            let bytes = self.part(&first).await?;
            if let Ok(part) = unpacked(&first, &bytes, identities) {
                known.add_session(key.clone(), &part.header.oz.request_uid);
            }
        }
        Ok(known)
    }
}

/// Returns the last session of the request with this UID, or that of this name.
fn by_uid(known: &SessionRequests, uid: &str, session: Option<&str>) -> Option<SessionKey> {
    let mut keys = known.sessions_of(uid);
    keys.retain(|key| session.is_none_or(|session| key.session == session));
    keys.pop()
}

/// Returns the names of the requests with recordings in a directory.
fn requests_in(path: &Path, namespace: &str) -> Result<Vec<String>> {
    let names = entries(&path.join(namespace))?;
    let is_name = |name: &String| SessionKey::read(&format!("{namespace}/{name}/x")).is_some();
    Ok(names.into_iter().filter(is_name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::NamedRequest;

    const FIRST: &str = "9cd5a2fc-0000-4000-8000-5f3a00000001";
    const SECOND: &str = "9cd5a2fc-0000-4000-8000-5f3a00000002";

    fn session(key: &str) -> SessionKey {
        SessionKey::read(key).unwrap()
    }

    /// Stores the first part of a recording of a request's session.
    fn store(directory: &Path, key: &str, uid: &str) {
        let header = serde_json::json!({
            "version": 2, "width": 80, "height": 24, "timestamp": 0,
            "oz": {
                "session": key, "requestUid": uid, "requestKind": "ExecAccessRequest",
                "user": "alice", "pod": "web", "podUid": "p", "way": "exec", "tty": true,
                "openedAt": "2026-01-01T12:00:00Z",
            },
        });
        let place = directory.join(key);
        std::fs::create_dir_all(&place).unwrap();
        let part = oz_recording::pack(format!("{header}\n").as_bytes()).unwrap();
        std::fs::write(place.join("000000.cast.zst"), part).unwrap();
    }

    #[tokio::test]
    async fn recording_is_found_by_uid_and_by_a_name_of_one_request() {
        let directory = tempfile::tempdir().unwrap();
        for (key, uid) in [
            ("shop/mine/1", FIRST),
            ("shop/mine/2", FIRST),
            ("shop/mine/3", SECOND),
            ("shop/other/1", SECOND),
        ] {
            store(directory.path(), key, uid);
        }
        let source = Source::Directory(directory.path().to_owned());
        let shared = SessionError::SharedName {
            namespace: "shop".into(),
            request: "mine".into(),
            requests: vec![
                NamedRequest {
                    uid: SECOND.into(),
                    last: Some(session("shop/mine/3")),
                },
                NamedRequest {
                    uid: FIRST.into(),
                    last: Some(session("shop/mine/2")),
                },
            ],
        };
        let none = SessionError::NoRecording {
            namespace: "shop".into(),
            request: "none".into(),
        };
        for (text, expected) in [
            (FIRST.to_owned(), Ok("shop/mine/2")),
            (format!("{FIRST}/1"), Ok("shop/mine/1")),
            ("mine/1".to_owned(), Ok("shop/mine/1")),
            ("mine/3".to_owned(), Ok("shop/mine/3")),
            ("mine".to_owned(), Err(shared.to_string())),
            ("other".to_owned(), Ok("shop/other/1")),
            ("none".to_owned(), Err(none.to_string())),
        ] {
            let found = source.session("shop", &text, &Identities::default()).await;
            let found = found.map(|found| found.key.to_string());
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, expected.map(str::to_owned), "{text}");
        }
    }
}
