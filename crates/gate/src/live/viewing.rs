//! The views of open sessions: the gate records a viewer before it shows a session, and notifies the user of the session.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, StatusCode};
use futures::{Stream, stream};
use hyper::body::Bytes;
use jiff::Timestamp;
use oz_api::{RecordedInput, RecordingConfig, RecordingMode, Requester};
use oz_audit::Sink as _;
use oz_gating::live::{self, Watcher};
use oz_trail::{Action, Decision, Record};
use tokio::sync::broadcast::error::RecvError;

use super::LiveSessions;
use super::register::Live;
use crate::answer::{Refused, over};
use crate::journal::Journal;
use crate::traffic::View;

/// The maximum number of viewers of one session at a time.
const MAX_VIEWERS: usize = 16;
/// The interval of the checks for input that the terminal did not echo.
const TICK: Duration = Duration::from_millis(250);
/// The time without output after which the gate checks whether a viewer is still connected.
const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// The view of a session without a recording: the output, and not the input of the user.
const UNRECORDED: RecordingConfig = RecordingConfig {
    mode: RecordingMode::BestEffort,
    input: RecordedInput::None,
    non_interactive: None,
};

/// The view of one viewer, for as long as this value exists.
struct Viewing {
    live: Arc<Live>,
    viewer: Requester,
    watcher: Watcher,
    journal: Journal,
    /// The subject of the audit records; it differs between views that began at the same time.
    subject: String,
    /// True if the view was recorded in the audit trail.
    recorded: bool,
    /// True if the view has begun.
    began: bool,
}

impl Viewing {
    fn record(&self, now: Timestamp, decision: Decision) -> Record {
        let (key, viewer) = (&self.live.data.key, &self.viewer.user);
        let owner = &self.live.data.user.user;
        let (reason, message) = match decision {
            Decision::Allow => (
                "Began",
                format!("{viewer} watches session {key} of {owner}"),
            ),
            _ => (
                "Ended",
                format!("{viewer} stopped watching session {key} of {owner}"),
            ),
        };
        let subject = format!("{} {reason}", self.subject);
        let action = Action::SessionWatched;
        let mut record = Record::about(now, action, decision, &subject, reason, message)
            .detail("session", key.to_string())
            .detail("since", self.watcher.since.to_string());
        record.user = Some(self.viewer.clone());
        record.request.namespace.clone_from(&key.namespace);
        record.request.name.clone_from(&key.request);
        record
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        let mut watchers = self.live.watchers();
        if let Some(at) = watchers.iter().position(|one| *one == self.watcher) {
            watchers.remove(at);
        }
        drop(watchers);
        if self.began {
            if let Some(moderation) = &self.live.data.moderation {
                moderation.left(&self.viewer);
            }
            self.live.traffic.left();
            self.live
                .traffic
                .tell(live::notice(&self.viewer.user, false));
        }
        if self.recorded {
            let record = self.record(self.journal.now(), Decision::End);
            self.journal.trail.note(record);
        }
    }
}

impl LiveSessions {
    /// Begins to watch a session. The viewer is recorded before the first byte.
    pub(super) async fn watch(
        &self,
        viewer: &Requester,
        live: Arc<Live>,
    ) -> Result<Response<Body>, Refused> {
        if !live.is_watchable() {
            let message = format!(
                "session {} cannot be watched: only exec and attach can, with a protocol that the \
                 gate reads (kubectl 1.30 or newer)",
                live.data.key
            );
            return Err(Refused::new(StatusCode::CONFLICT, "NotWatchable", message));
        }
        let mut viewing = self.viewing(viewer, &live)?;
        let began = viewing.record(viewing.watcher.since, Decision::Allow);
        self.journal.trail.record(&began).await.map_err(|failure| {
            let message = format!(
                "failed to write the audit record ({failure}), which watching a session requires"
            );
            Refused::unavailable("RecordFailed", message)
        })?;
        viewing.recorded = true;
        let config = live.data.recording.unwrap_or(UNRECORDED);
        let Some(view) = live.traffic.watch(&live.data.about, &config) else {
            return Err(over(&live.data.key));
        };
        viewing.began = true;
        live.traffic.tell(live::notice(&viewer.user, true));
        if let Some(moderation) = &live.data.moderation {
            moderation.came(viewer);
        }
        let mut response = Response::new(Body::from_stream(lines(view, viewing)));
        let kind = HeaderValue::from_static("application/x-asciicast");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(response)
    }

    fn viewing(&self, viewer: &Requester, live: &Arc<Live>) -> Result<Viewing, Refused> {
        let since = self.journal.now();
        let mut watchers = live.watchers();
        if watchers.len() >= MAX_VIEWERS {
            let message = format!(
                "session {} has {MAX_VIEWERS} viewers, which is the maximum",
                live.data.key
            );
            let status = StatusCode::TOO_MANY_REQUESTS;
            return Err(Refused::new(status, "TooManyViewers", message));
        }
        let watcher = Watcher {
            user: viewer.user.clone(),
            since,
        };
        watchers.push(watcher.clone());
        drop(watchers);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(Viewing {
            live: Arc::clone(live),
            viewer: viewer.clone(),
            watcher,
            journal: self.journal.clone(),
            subject: format!(
                "{} {} {since} {} {number}",
                live.data.key, viewer.user, self.replica
            ),
            recorded: false,
            began: false,
        })
    }
}

/// Returns the lines for one viewer, until the session ends.
fn lines(view: View, viewing: Viewing) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let View { header, lines } = view;
    stream::unfold(
        (Some(header), lines, viewing),
        |(header, mut lines, viewing)| async move {
            if let Some(header) = header {
                return Some((Ok(header), (None, lines, viewing)));
            }
            let traffic = &viewing.live.traffic;
            let silent = tokio::time::sleep(ALIVE_EVERY);
            let mut silent = pin!(silent);
            let next = loop {
                tokio::select! {
                    next = lines.recv() => break next,
                    () = tokio::time::sleep(TICK) => traffic.tick(),
                    // An empty line has no meaning; it shows whether the viewer is still connected.
                    () = &mut silent => break Ok(Bytes::from_static(b"\n")),
                }
            };
            traffic.taken();
            let next = match next {
                Ok(next) => next,
                Err(RecvError::Lagged(missed)) => traffic.mark(&format!(
                    "this viewer reads too slowly: {missed} pieces of the output are skipped"
                )),
                Err(RecvError::Closed) => return None,
            };
            Some((Ok(next), (None, lines, viewing)))
        },
    )
}
