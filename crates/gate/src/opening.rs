//! A session that is being opened: the connect hook has it on record as soon as the API server lets it pass. Whatever
//! becomes of it then, its end is on record too: also of one that the kubelet refuses, or whose client goes meanwhile.

use std::sync::Arc;

use axum::http::StatusCode;
use oz_core::audit::{Action, Decision};

use crate::router::{Door, Session};

/// See the module. One that is dropped was not opened.
pub(crate) struct OpeningSession {
    door: Arc<Door>,
    session: Option<Session>,
    why: String,
}

impl OpeningSession {
    /// Of a session for which the API server is about to be asked.
    pub(crate) fn new(door: &Arc<Door>, session: Session) -> Self {
        Self {
            door: Arc::clone(door),
            session: Some(session),
            why: "whoever asked went away".to_owned(),
        }
    }

    /// Why it is not opened, should it be dropped from here on.
    pub(crate) fn fails(&mut self, why: impl Into<String>) {
        self.why = why.into();
    }

    /// It was answered, and not opened. What RBAC or the hook refuses was never on record as opened.
    pub(crate) fn answered(mut self, status: StatusCode) {
        self.fails(format!("the API server answered {status}"));
        if let StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED = status {
            self.session = None;
        }
    }

    /// It is open.
    pub(crate) fn opened(mut self) -> Option<Session> {
        self.session.take()
    }

    /// What is being opened.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }
}

impl Drop for OpeningSession {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        let message = format!("{} was not opened after all: {}", session.title(), self.why);
        let (now, action) = (self.door.clock.now(), Action::SessionEnded);
        let record = session.record(now, action, Decision::End, "NotOpened", message);
        self.door.trail.note(
            record
                .detail("way", session.way)
                .detail("openedAt", session.opened_at.to_string()),
        );
    }
}
