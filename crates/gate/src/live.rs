//! The open sessions of this process: listing, ending and watching them. The API server has checked that the user may
//! do so; the gate records the access before it shows a session, and notifies the user of the session.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, Response, StatusCode};
use futures::{Stream, stream};
use hyper::body::Bytes;
use jiff::{SignedDuration, Timestamp};
use oz_api::{RecordedInput, RecordingConfig, RecordingMode, Requester};
use oz_audit::{Sink as _, Trail};
use oz_core::connect::Refusal;
use oz_gating::live::{self, Listing, Live as LivePath, Watcher};
use oz_gating::moderation::Phase;
use oz_gating::recording::{About, SessionKey};
use oz_runtime::Clock;
use oz_trail::{Action, Decision, Record};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use crate::answer::{Refused, document};
use crate::idle::Idle;
use crate::moderated::Moderation;
use crate::router::Door;
use crate::socket::Spoken;
use crate::traffic::{Traffic, View};

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

/// The open sessions of this process.
#[derive(Debug, Default)]
pub(crate) struct Register {
    open: Mutex<BTreeMap<SessionKey, Arc<Live>>>,
}

/// An open session.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) key: SessionKey,
    pub(crate) about: About,
    pub(crate) user: Requester,
    pub(crate) until: Timestamp,
    /// True if the gate reads the content of the session; set once its protocol was agreed on.
    watchable: OnceLock<bool>,
    /// The recording that the template requests, if it requests one.
    pub(crate) recording: Option<RecordingConfig>,
    pub(crate) recorded: bool,
    pub(crate) idle: Arc<Idle>,
    pub(crate) traffic: Traffic,
    /// The required moderators, if the session requires any.
    pub(crate) moderation: Option<Moderation>,
    watchers: Mutex<Vec<Watcher>>,
    ended: watch::Sender<Option<(Requester, Refusal)>>,
}

/// The data of a session that is about to be opened.
pub(crate) struct Opened {
    pub(crate) key: SessionKey,
    pub(crate) about: About,
    pub(crate) user: Requester,
    pub(crate) until: Timestamp,
    pub(crate) recording: Option<RecordingConfig>,
    pub(crate) recorded: bool,
    pub(crate) idle: Arc<Idle>,
    pub(crate) moderation: Option<Moderation>,
}

/// An entry that keeps a session in the register until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    register: Arc<Register>,
    key: SessionKey,
}

impl Register {
    /// Adds a session to the register.
    pub(crate) fn enter(self: &Arc<Self>, opened: Opened) -> (Arc<Live>, Entry) {
        let watchable = OnceLock::new();
        let mut traffic = Traffic::default();
        if opened.moderation.is_some() {
            // The gate asks the API server for no protocol that it cannot show.
            let _ = watchable.set(true);
            traffic = Traffic::moderated();
        }
        let live = Arc::new(Live {
            key: opened.key.clone(),
            about: opened.about,
            user: opened.user,
            until: opened.until,
            watchable,
            recording: opened.recording,
            recorded: opened.recorded,
            idle: opened.idle,
            moderation: opened.moderation,
            traffic,
            watchers: Mutex::default(),
            ended: watch::Sender::new(None),
        });
        self.open().insert(opened.key.clone(), Arc::clone(&live));
        let entry = Entry {
            register: Arc::clone(self),
            key: opened.key,
        };
        (live, entry)
    }

    /// Returns the sessions of a request.
    pub(crate) fn list_for_request(&self, namespace: &str, request: &str) -> Vec<Arc<Live>> {
        let open = self.open();
        let theirs = open.values().filter(|live| {
            let key = &live.key;
            key.namespace == namespace && key.request == request
        });
        theirs.cloned().collect()
    }

    /// Returns one session.
    pub(crate) fn get(&self, key: &SessionKey) -> Option<Arc<Live>> {
        self.open().get(key).cloned()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<SessionKey, Arc<Live>>> {
        self.open.lock()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let live = self.register.open().remove(&self.key);
        if let Some(live) = live {
            // In any case: a session that has ended has no viewers.
            live.traffic.end("the session has ended");
        }
    }
}

impl Live {
    /// Records the protocol to which the API server has agreed.
    pub(crate) fn agreed(&self, spoken: Option<Spoken>) {
        // If the value is already set, the API server has agreed to the same protocol.
        let _ = self
            .watchable
            .set(spoken.is_some_and(|spoken| spoken.words.is_some()));
    }

    /// Checks whether the content of the session can be shown.
    fn is_watchable(&self) -> bool {
        self.watchable.get() == Some(&true)
    }

    /// Waits until a user ends the session, and returns the message for its user.
    pub(crate) async fn ended(&self) -> Refusal {
        let mut ended = self.ended.subscribe();
        let ended = ended.wait_for(Option::is_some).await;
        match ended.ok().and_then(|ended| ended.clone()) {
            Some((_, why)) => why,
            // The sender lives as long as this value.
            None => std::future::pending().await,
        }
    }

    /// Returns the user who ended the session, if a user did.
    pub(crate) fn ended_by(&self) -> Option<Requester> {
        self.ended.borrow().as_ref().map(|(by, _)| by.clone())
    }

    fn end(&self, by: &Requester, reason: Option<&str>) {
        let why = live::ended(&by.user, reason);
        // Only the first call ends the session.
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some((by.clone(), why));
            }
            first
        });
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.watchers.lock()
    }

    /// Returns the session as the listing shows it.
    fn describe(&self, now: Timestamp, replica: &str) -> live::Session {
        let idle = SignedDuration::try_from(self.idle.for_how_long());
        let idle = idle.unwrap_or(SignedDuration::MAX);
        let (bytes_in, bytes_out) = self.traffic.bytes();
        let about = &self.about;
        live::Session {
            session: self.key.to_string(),
            request_uid: about.request_uid.clone(),
            user: self.user.user.clone(),
            pod: about.pod.clone(),
            container: about.container.clone(),
            way: about.way.clone(),
            command: about.command.clone(),
            command_digest: about.command_digest.clone(),
            opened_at: about.opened_at,
            idle_since: now.saturating_sub(idle).unwrap_or(now).max(about.opened_at),
            until: self.until,
            bytes_in,
            bytes_out,
            recorded: self.recorded,
            watchable: self.is_watchable(),
            watchers: self.watchers().clone(),
            replica: replica.to_owned(),
            state: match self.moderation.as_ref().map(Moderation::phase) {
                None | Some(Phase::Open) => live::State::Open,
                Some(Phase::Waiting(_) | Phase::ViewerTimeout) => live::State::Waiting,
                Some(Phase::Paused(_) | Phase::ViewerReturnTimeout) => live::State::Paused,
            },
            moderation: self
                .moderation
                .as_ref()
                .map(|moderation| moderation.config.clone()),
        }
    }
}

/// The view of one viewer, for as long as this value exists.
struct Viewing {
    live: Arc<Live>,
    viewer: Requester,
    watcher: Watcher,
    trail: Trail,
    clock: Arc<dyn Clock>,
    /// The subject of the audit records; it differs between views that began at the same time.
    subject: String,
    /// True if the view was recorded in the audit trail.
    recorded: bool,
    /// True if the view has begun.
    began: bool,
}

impl Viewing {
    fn record(&self, now: Timestamp, decision: Decision) -> Record {
        let (key, viewer) = (&self.live.key, &self.viewer.user);
        let owner = &self.live.user.user;
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
            if let Some(moderation) = &self.live.moderation {
                moderation.left(&self.viewer);
            }
            self.live.traffic.left();
            self.live
                .traffic
                .tell(live::notice(&self.viewer.user, false));
        }
        if self.recorded {
            self.trail
                .note(self.record(self.clock.now(), Decision::End));
        }
    }
}

impl Door {
    /// Returns the response to a request about one session, from this process only; `None` if the process does not
    /// have the session.
    pub(crate) async fn live(
        self: &Arc<Self>,
        user: &Requester,
        asked: &LivePath,
        method: &Method,
        query: Option<&str>,
    ) -> Result<Option<Response<Body>>, Refused> {
        match (asked, method) {
            (LivePath::One(key), &Method::GET) => {
                let Some(live) = self.register.get(key) else {
                    return Ok(None);
                };
                json_response(&live.describe(self.clock.now(), &self.replica)).map(Some)
            }
            (LivePath::One(key), &Method::DELETE) => {
                let options = query.map(|query| form_urlencoded::parse(query.as_bytes()));
                let options: Vec<_> = options.into_iter().flatten().collect();
                let options = options.iter().map(|(name, value)| (&**name, &**value));
                let reason = live::reason(options)?;
                let Some(live) = self.register.get(key) else {
                    return Ok(None);
                };
                live.end(user, reason.as_deref());
                json_response(&live.describe(self.clock.now(), &self.replica)).map(Some)
            }
            (LivePath::Watch(key), &Method::GET) => match self.register.get(key) {
                Some(live) => self.watch(user, live).await.map(Some),
                None => Ok(None),
            },
            _ => Err(not_allowed()),
        }
    }

    /// Returns the open sessions of a request in this process.
    pub(crate) fn listing(&self, asked: &LivePath) -> Listing {
        let (namespace, request) = asked.request();
        let (now, replica) = (self.clock.now(), &self.replica);
        let sessions = self.register.list_for_request(namespace, request);
        Listing {
            sessions: sessions
                .iter()
                .map(|live| live.describe(now, replica))
                .collect(),
            incomplete: Vec::new(),
        }
    }

    async fn watch(
        self: &Arc<Self>,
        viewer: &Requester,
        live: Arc<Live>,
    ) -> Result<Response<Body>, Refused> {
        if !live.is_watchable() {
            let message = format!(
                "session {} cannot be watched: only exec and attach can, with a protocol that the \
                 gate reads (kubectl 1.30 or newer)",
                live.key
            );
            return Err(Refused::new(StatusCode::CONFLICT, "NotWatchable", message));
        }
        let mut viewing = self.viewing(viewer, &live)?;
        let began = viewing.record(viewing.watcher.since, Decision::Allow);
        self.trail.record(&began).await.map_err(|failure| {
            let message = format!(
                "failed to write the audit record ({failure}), which watching a session requires"
            );
            Refused::unavailable("RecordFailed", message)
        })?;
        viewing.recorded = true;
        let config = live.recording.unwrap_or(UNRECORDED);
        let Some(view) = live.traffic.watch(&live.about, &config) else {
            return Err(over(&live.key));
        };
        viewing.began = true;
        live.traffic.tell(live::notice(&viewer.user, true));
        if let Some(moderation) = &live.moderation {
            moderation.came(viewer);
        }
        let mut response = Response::new(Body::from_stream(lines(view, viewing)));
        let kind = HeaderValue::from_static("application/x-asciicast");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(response)
    }

    fn viewing(&self, viewer: &Requester, live: &Arc<Live>) -> Result<Viewing, Refused> {
        let since = self.clock.now();
        let mut watchers = live.watchers();
        if watchers.len() >= MAX_VIEWERS {
            let message = format!(
                "session {} has {MAX_VIEWERS} viewers, which is the maximum",
                live.key
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
        let number = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Viewing {
            live: Arc::clone(live),
            viewer: viewer.clone(),
            watcher,
            trail: self.trail.clone(),
            clock: Arc::clone(&self.clock),
            subject: format!(
                "{} {} {since} {} {number}",
                live.key, viewer.user, self.replica
            ),
            recorded: false,
            began: false,
        })
    }
}

/// Returns the lines for one viewer, until the session ends.
fn lines(
    view: View,
    viewing: Viewing,
) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> {
    let View { header, lines } = view;
    stream::unfold(
        (Some(header), lines, viewing),
        |(header, mut lines, viewing)| async move {
            if let Some(header) = header {
                return Some((Ok(header), (None, lines, viewing)));
            }
            let traffic = &viewing.live.traffic;
            let silent = tokio::time::sleep(ALIVE_EVERY);
            let mut silent = std::pin::pin!(silent);
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

/// Returns the refusal of an unsupported method.
pub(crate) fn not_allowed() -> Refused {
    let message = "open sessions are read with GET, and terminated with DELETE";
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
}

/// Returns the refusal for a session that is not open.
pub(crate) fn over(key: &SessionKey) -> Refused {
    let message = format!(
        "session {key} is not open; ozctl sessions list --live shows open \
        sessions"
    );
    Refused::new(StatusCode::NOT_FOUND, "NotOpen", message)
}

/// Returns a response with one document.
pub(crate) fn json_response(found: &impl Serialize) -> Result<Response<Body>, Refused> {
    let found = serde_json::to_value(found)
        .map_err(|error| Refused::unavailable("Internal", error.to_string()))?;
    Ok(document(StatusCode::OK, &found))
}
