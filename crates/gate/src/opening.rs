//! A session that is being opened: the connect hook records it as soon as the API server permits it. The gate then
//! records its end too, in every case: also when the kubelet refuses the session, or when its client disconnects.
//! Before that, the session may wait for a moderator; if its client does not wait long enough, this is recorded too.

use std::sync::Arc;

use axum::http::StatusCode;
use oz_core::connect::Refusal;
use oz_gating::upgrade::DIFFERS;
use oz_trail::{Action, Decision};
use tokio::runtime::Handle;

use crate::answer::Refused;
use crate::relay::Carried;
use crate::router::{Door, Session};
use crate::tape::Writer;

/// The reason of a session that is not opened because its handler was dropped.
const WENT_AWAY: &str = "the client disconnected";

/// The opening session of the [module](self). If it is dropped, the session was not opened.
pub(crate) struct OpeningSession {
    door: Arc<Door>,
    session: Option<Session>,
    /// The recording, which begins before the request to the API server: a command is recorded, or it does not run.
    writer: Option<Writer>,
    why: String,
}

impl OpeningSession {
    /// Creates the state of a session that the gate is about to request from the API server.
    pub(crate) fn new(door: &Arc<Door>, session: Session, writer: Option<Writer>) -> Self {
        Self {
            door: Arc::clone(door),
            session: Some(session),
            writer,
            why: WENT_AWAY.to_owned(),
        }
    }

    /// Sets the reason that is recorded if the session is dropped from now on.
    pub(crate) fn fails(&mut self, why: impl Into<String>) {
        self.why = why.into();
    }

    /// Records that the session is refused. If the API server chose another protocol than planned, the session was cut
    /// off.
    pub(crate) fn refused(&mut self, refused: &Refused) {
        self.fails(&refused.message);
        if refused.reason == DIFFERS
            && let Some(session) = self.session.take()
        {
            let why = Refusal::from(refused.clone());
            self.door.note_end(&session, Some(&why), Carried::default());
            self.keep(session);
        }
    }

    /// Records that the API server answered without opening the session. A session that RBAC or the hook refuses was
    /// never recorded as opened, and nothing ran.
    pub(crate) fn answered(mut self, status: StatusCode) {
        self.fails(format!("the API server responded {status}"));
        if let Some(writer) = self.writer.take() {
            tokio::spawn(writer.discard());
        }
        if let StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED = status {
            self.session = None;
        }
    }

    /// Records that the session is open.
    pub(crate) fn opened(mut self) -> Option<(Session, Option<Writer>)> {
        let session = self.session.take()?;
        Some((session, self.writer.take()))
    }

    /// Ends and keeps the recording: after the request to the API server, a command may have run.
    fn keep(&mut self, session: Session) {
        let Some(writer) = self.writer.take() else {
            return;
        };
        let (door, why) = (Arc::clone(&self.door), std::mem::take(&mut self.why));
        // Without a runtime the process is ending, and the next process finds the recording.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let carried = Carried::default();
                door.recorded(&session, writer, &why, carried).await;
            });
        }
    }
}

impl Drop for OpeningSession {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            note(&self.door, &session, &self.why);
            self.keep(session);
        }
    }
}

/// A session that waits. If it is dropped before its wait [`ends`](Self::ends), its client has disconnected.
pub(crate) struct WaitingSession<'a> {
    door: &'a Door,
    session: &'a Session,
    why: Option<String>,
}

impl<'a> WaitingSession<'a> {
    /// Begins the wait.
    pub(crate) fn new(door: &'a Door, session: &'a Session) -> Self {
        Self {
            door,
            session,
            why: Some(WENT_AWAY.to_owned()),
        }
    }

    /// Ends the wait, whether or not the session is opened.
    pub(crate) fn ends(mut self) {
        self.why = None;
    }

    /// Records that the session is not opened, for this reason.
    pub(crate) fn fails(mut self, why: &str) {
        self.why = Some(why.to_owned());
    }
}

impl Drop for WaitingSession<'_> {
    fn drop(&mut self) {
        if let Some(why) = &self.why {
            note(self.door, self.session, why);
        }
    }
}

/// Records in the audit trail that a session is not opened.
fn note(door: &Door, session: &Session, why: &str) {
    let message = format!("{} was not opened: {why}", session.title());
    let (now, action) = (door.clock.now(), Action::SessionEnded);
    let record = session.record(now, action, Decision::End, "NotOpened", message);
    door.trail.note(
        record
            .detail("way", session.way)
            .detail("openedAt", session.opened_at.to_string()),
    );
}
