//! Playback of recordings: the API server requires `get` on `gates/recordings` of the request. The gate records the
//! viewer before it sends any part of a recording.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, Response, StatusCode};
use hyper::body::Bytes;
use jiff::{SignedDuration, Timestamp};
use oz_api::Requester;
use oz_audit::Sink as _;
use oz_gating::path::Recordings as RecordingsPath;
use oz_gating::recording::{Listing, PartName, SessionKey};
use oz_trail::{Action, Decision, Record};
use parking_lot::Mutex;

use crate::answer::Refused;
use crate::counts::{Counts, Reached};
use crate::journal::Journal;
use crate::recordings::Recordings;
use crate::storage::StorageError;

/// The largest part that is sent.
const MAX_PART: usize = 16 << 20;
/// The maximum number of parts of a request that are listed.
const MAX_LISTED: usize = 50_000;
/// The time for which one audit record covers the reading of a recording by one user.
const ONE_VIEWING: SignedDuration = SignedDuration::from_mins(10);
/// The maximum number of remembered viewings.
const MAX_VIEWINGS: usize = 1_000;
/// The maximum number of requests for recordings that are answered at once: each may hold a part in memory. ozctl sends
/// one at a time.
const MAX_READINGS: usize = 6;
/// The maximum number of these requests of one user.
const MAX_READINGS_PER_USER: usize = 2;

/// The recordings that users have read lately, by user name.
#[derive(Debug, Default)]
pub(crate) struct Viewings {
    last: Mutex<HashMap<(String, SessionKey), Timestamp>>,
}

impl Viewings {
    /// Checks whether a recorded viewing continues.
    fn goes_on(&self, viewer: &(String, SessionKey), now: Timestamp) -> bool {
        let last = self.last.lock();
        last.get(viewer)
            .is_some_and(|at| now.duration_since(*at) < ONE_VIEWING)
    }

    fn began(&self, viewer: (String, SessionKey), now: Timestamp) {
        let mut last = self.last.lock();
        if last.len() >= MAX_VIEWINGS {
            last.retain(|_, at| now.duration_since(*at) < ONE_VIEWING);
        }
        // A viewing that is not remembered is recorded once more.
        if last.len() < MAX_VIEWINGS {
            last.insert(viewer, now);
        }
    }
}

/// The requests for recordings that are being answered.
#[derive(Debug)]
pub(crate) struct Readings(Mutex<Counts>);

/// The room for one such request, returned when this value is dropped.
#[derive(Debug)]
struct Reading {
    readings: Arc<Readings>,
    user: String,
}

/// The content of a response, which takes the room until it is sent.
struct Content {
    bytes: Bytes,
    _reading: Reading,
}

impl Readings {
    pub(crate) fn new() -> Arc<Self> {
        let counts = Counts::new(MAX_READINGS, MAX_READINGS_PER_USER);
        Arc::new(Self(Mutex::new(counts)))
    }

    /// Takes room for one more request of this user.
    fn take(self: &Arc<Self>, user: &str) -> Result<Reading, Refused> {
        let added = self.0.lock().add(user);
        let message = match added {
            Ok(()) => {
                return Ok(Reading {
                    readings: Arc::clone(self),
                    user: user.to_owned(),
                });
            }
            Err(Reached::PerUser(theirs)) => format!(
                "{user} reads {theirs} parts or lists of recordings at once, which is the maximum \
                 for a user; wait until one has arrived, and try again"
            ),
            Err(Reached::Total(all)) => format!(
                "the gate sends {all} parts or lists of recordings at once, which is its maximum; \
                 try again in a moment"
            ),
        };
        let status = StatusCode::TOO_MANY_REQUESTS;
        Err(Refused::new(status, "TooManyReadings", message))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.readings.0.lock().remove(&self.user);
    }
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The requests for recordings.
pub(crate) struct Playback {
    /// The storage of recordings, if there is one.
    pub(crate) recordings: Option<Recordings>,
    pub(crate) viewings: Viewings,
    pub(crate) readings: Arc<Readings>,
    pub(crate) journal: Journal,
    /// The name of this replica.
    pub(crate) replica: String,
}

impl Playback {
    /// Lists or sends recordings. The API server has checked that the user may read them.
    pub(crate) async fn answer(
        &self,
        user: &Requester,
        asked: &RecordingsPath,
        method: &Method,
    ) -> Result<Response<Body>, Refused> {
        if method != Method::GET {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            return Err(Refused::new(
                status,
                "MethodNotAllowed",
                "recordings are read with GET",
            ));
        }
        let Some(recordings) = &self.recordings else {
            let message = "this gate keeps no recordings (gate.recordings.url of the chart)";
            return Err(Refused::new(StatusCode::NOT_FOUND, "NoRecordings", message));
        };
        let reading = self.readings.take(&user.user)?;
        let (kind, bytes) = match &asked.part {
            None => ("application/json", recordings.listing(asked).await?),
            Some(part) => {
                let bytes = self.part(recordings, user, part).await?;
                ("application/octet-stream", bytes)
            }
        };
        Ok(sent(kind, bytes, reading))
    }

    async fn part(
        &self,
        recordings: &Recordings,
        user: &Requester,
        part: &PartName,
    ) -> Result<Bytes, Refused> {
        let key = &part.session;
        // In the stored form: an encrypted part stays encrypted until it is with a user who has the identity.
        let name = part.to_string();
        let found = recordings
            .storage
            .get(&name, MAX_PART)
            .await
            .map_err(|error| away(&error))?;
        let Some(bytes) = found else {
            let message =
                format!("there is no part {name}; ozctl sessions list shows the existing parts");
            return Err(Refused::new(StatusCode::NOT_FOUND, "NotFound", message));
        };
        let (now, viewer) = (self.journal.now(), (user.user.clone(), key.clone()));
        if !self.viewings.goes_on(&viewer, now) {
            self.journal
                .trail
                .record(&self.played(user, key, now))
                .await
                .map_err(|failure| {
                    let message = format!(
                        "failed to write the audit record ({failure}), which reading \
                    a recording requires"
                    );
                    Refused::unavailable("RecordFailed", message)
                })?;
            self.viewings.began(viewer, now);
        }
        Ok(bytes)
    }

    fn played(&self, user: &Requester, key: &SessionKey, now: Timestamp) -> Record {
        let message = format!("{} read the recording of session {key}", user.user);
        let subject = format!("{key} {} {now} {}", user.user, self.replica);
        let (action, decision) = (Action::RecordingPlayed, Decision::Allow);
        let mut record = Record::about(now, action, decision, &subject, "Read", message)
            .detail("session", key.to_string());
        record.user = Some(user.clone());
        record.request.namespace.clone_from(&key.namespace);
        record.request.name.clone_from(&key.request);
        record
    }
}

impl Recordings {
    async fn listing(&self, asked: &RecordingsPath) -> Result<Bytes, Refused> {
        let prefix = format!("{}/{}/", asked.namespace, asked.request);
        let names = self
            .storage
            .list(&prefix, "", MAX_LISTED)
            .await
            .map_err(|error| away(&error))?;
        let listing = Listing::from_parts(names.iter().filter_map(|name| PartName::read(name)));
        let listing = serde_json::to_vec(&listing)
            .map_err(|error| Refused::unavailable("Internal", error.to_string()))?;
        Ok(listing.into())
    }
}

/// Returns a response with this content. The reading ends when the content has been sent.
fn sent(kind: &'static str, bytes: Bytes, reading: Reading) -> Response<Body> {
    let content = Bytes::from_owner(Content {
        bytes,
        _reading: reading,
    });
    let mut response = Response::new(Body::from(content));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn away(error: &StorageError) -> Refused {
    let message = format!("failed to read recordings: {error}; try again in a moment");
    Refused::unavailable("Storage", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_recordings_are_bounded_until_their_content_is_sent() {
        let readings = Readings::new();
        let first = readings.take("alice").unwrap();
        let response = sent("application/json", Bytes::from_static(b"{}"), first);
        let _second = readings.take("alice").unwrap();
        let refused = readings.take("alice").unwrap_err();
        let status = StatusCode::TOO_MANY_REQUESTS;
        assert_eq!(
            (refused.status, refused.reason),
            (status, "TooManyReadings")
        );
        let why = "alice reads 2 parts or lists of recordings at once";
        assert!(refused.message.contains(why), "{}", refused.message);

        let others: Vec<Reading> = ["bob", "bob", "carol", "carol"]
            .into_iter()
            .map(|user| readings.take(user).unwrap())
            .collect();
        let refused = readings.take("dave").unwrap_err();
        let why = "the gate sends 6 parts or lists";
        assert!(refused.message.contains(why), "{}", refused.message);

        drop(response);
        assert!(readings.take("alice").is_ok());
        drop(others);
        assert!(readings.take("dave").is_ok());
    }
}
