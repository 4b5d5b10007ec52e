//! A session that is being opened: the connect hook has it on record as soon as the API server lets it pass. Whatever
//! becomes of it then, its end is on record too: also of one that the kubelet refuses, or whose client goes meanwhile.

use std::sync::Arc;

use axum::http::StatusCode;
use oz_core::audit::{Action, Decision, Record};

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
        self.door
            .trail
            .note(record(&session, &self.door, &self.why));
    }
}

fn record(session: &Session, door: &Door, why: &str) -> Record {
    let (grant, now) = (&session.grant, door.clock.now());
    let message = format!(
        "the session of {} in pod {} ({}) was not opened after all: {why}",
        session.user.user, grant.pod.name, session.way
    );
    let action = Action::SessionEnded;
    let mut record = grant.record(now, action, Decision::End, "NotOpened", message);
    record.id = Record::id(action, &session.key.to_string());
    record.user = Some(session.user.clone());
    record
        .detail("session", session.key.to_string())
        .detail("way", session.way)
        .detail("openedAt", session.opened_at.to_string())
}
