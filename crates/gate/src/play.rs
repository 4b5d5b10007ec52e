//! Playback of recordings: the API server requires `get` on `gates/recordings` of the request. The gate records the
//! viewer before it sends any part of a recording.

use std::collections::HashMap;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use oz_api::Requester;
use oz_audit::Sink as _;
use oz_gating::path::Recordings as RecordingsPath;
use oz_gating::recording::{Listing, PartName, SessionKey};
use oz_trail::{Action, Decision, Record};
use parking_lot::Mutex;

use crate::answer::{Refused, document};
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

/// The requests for recordings.
pub(crate) struct Playback {
    /// The storage of recordings, if there is one.
    pub(crate) recordings: Option<Recordings>,
    pub(crate) viewings: Viewings,
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
        match &asked.part {
            None => recordings.listing(asked).await,
            Some(part) => self.part(recordings, user, part).await,
        }
    }

    async fn part(
        &self,
        recordings: &Recordings,
        user: &Requester,
        part: &PartName,
    ) -> Result<Response<Body>, Refused> {
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
        let mut response = Response::new(Body::from(bytes));
        let octets = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(CONTENT_TYPE, octets);
        Ok(response)
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
    async fn listing(&self, asked: &RecordingsPath) -> Result<Response<Body>, Refused> {
        let prefix = format!("{}/{}/", asked.namespace, asked.request);
        let names = self
            .storage
            .list(&prefix, "", MAX_LISTED)
            .await
            .map_err(|error| away(&error))?;
        let listing = Listing::from_parts(names.iter().filter_map(|name| PartName::read(name)));
        let listing = serde_json::to_value(&listing)
            .map_err(|error| Refused::unavailable("Internal", error.to_string()))?;
        Ok(document(StatusCode::OK, &listing))
    }
}

fn away(error: &StorageError) -> Refused {
    let message = format!("failed to read recordings: {error}; try again in a moment");
    Refused::unavailable("Storage", message)
}
