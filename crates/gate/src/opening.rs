//! A session that is being opened: the connect hook has it on record as soon as the API server lets it pass. Whatever
//! becomes of it then, its end is on record too: also of one that the kubelet refuses, or whose client goes meanwhile.
//! Before that one may wait for somebody to watch it, which is on record too if its client does not wait so long.

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

/// Why a session is not opened whose handler is dropped.
const WENT_AWAY: &str = "whoever asked went away";

/// See the module. One that is dropped was not opened.
pub(crate) struct OpeningSession {
    door: Arc<Door>,
    session: Option<Session>,
    /// The recording, which begins before the request to the API server: a command is recorded, or it does not run.
    writer: Option<Writer>,
    why: String,
}

impl OpeningSession {
    /// Of a session for which the API server is about to be asked.
    pub(crate) fn new(door: &Arc<Door>, session: Session, writer: Option<Writer>) -> Self {
        Self {
            door: Arc::clone(door),
            session: Some(session),
            writer,
            why: WENT_AWAY.to_owned(),
        }
    }

    /// Why it is not opened, should it be dropped from here on.
    pub(crate) fn fails(&mut self, why: impl Into<String>) {
        self.why = why.into();
    }

    /// It is refused. One for which the API server took another protocol than was planned was cut.
    pub(crate) fn refused(&mut self, refused: &Refused) {
        self.fails(&refused.message);
        if refused.reason == DIFFERS
            && let Some(session) = self.session.take()
        {
            let why = Refusal {
                reason: refused.reason,
                message: refused.message.clone(),
            };
            self.door.note_end(&session, Some(&why), Carried::default());
            self.keep(session);
        }
    }

    /// It was answered, and not opened. What RBAC or the hook refuses was never on record as opened, and nothing ran.
    pub(crate) fn answered(mut self, status: StatusCode) {
        self.fails(format!("the API server answered {status}"));
        if let Some(writer) = self.writer.take() {
            tokio::spawn(writer.discard());
        }
        if let StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED = status {
            self.session = None;
        }
    }

    /// It is open.
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
        // Without a runtime the process ends, and the next one finds the recording.
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

/// A session that waits. One that is dropped before its wait [`ends`](Self::ends) has lost its client.
pub(crate) struct WaitingSession<'a> {
    door: &'a Door,
    session: &'a Session,
    waits: bool,
}

impl<'a> WaitingSession<'a> {
    /// It waits from now on.
    pub(crate) fn new(door: &'a Door, session: &'a Session) -> Self {
        Self {
            door,
            session,
            waits: true,
        }
    }

    /// It has waited long enough, whatever comes of it.
    pub(crate) fn ends(mut self) {
        self.waits = false;
    }
}

impl Drop for WaitingSession<'_> {
    fn drop(&mut self) {
        if self.waits {
            note(self.door, self.session, WENT_AWAY);
        }
    }
}

/// Puts on record that a session is not opened.
fn note(door: &Door, session: &Session, why: &str) {
    let message = format!("{} was not opened after all: {why}", session.title());
    let (now, action) = (door.clock.now(), Action::SessionEnded);
    let record = session.record(now, action, Decision::End, "NotOpened", message);
    door.trail.note(
        record
            .detail("way", session.way)
            .detail("openedAt", session.opened_at.to_string()),
    );
}
