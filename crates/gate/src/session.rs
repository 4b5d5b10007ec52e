//! A session from its registration to its end. The states are here; [`close`](crate::close) writes the end.

use std::sync::Arc;

use jiff::Timestamp;
use oz_api::Requester;
use oz_core::access::grant::Grant;
use oz_gating::recording::SessionKey;
use oz_trail::{Action, Decision, Record};

use crate::grants::Grants;
use crate::journal::Journal;
use crate::live::{Entry, Live};
use crate::sessions::Slot;
use crate::tape::Writer;

/// The data of a session, and what it depends on until its end.
pub(crate) struct Registered {
    pub(crate) grant: Arc<Grant>,
    pub(crate) live: Arc<Live>,
    pub(crate) way: &'static str,
    pub(crate) must_be_recorded: bool,
    pub(crate) grants: Arc<Grants>,
    pub(crate) journal: Journal,
    /// The last field: a process that stops waits until the slots are free, and then all else has ended.
    pub(crate) slot: Slot,
}

/// A session: a state machine.
pub(crate) struct Session {
    /// The session is listed until its end, and not until its recording is in the audit trail.
    _entry: Entry,
    /// The task that ends the recording shares the data, and with it the slot.
    pub(crate) data: Arc<Registered>,
    pub(crate) state: State,
}

/// The state of a session.
pub(crate) enum State {
    /// The session is in the register. Nothing happened that has an end to record.
    Registered,
    /// The session waits for moderators.
    Waiting,
    /// The API server was asked for the session: its connect hook may have recorded the session, and a command may run.
    /// The recording begins before the request: a command is recorded, or it does not run.
    Requested(Option<Writer>),
    /// Data passes in both directions.
    Open(Option<Writer>),
    /// The client reads the body of a response.
    Followed,
    /// The end is recorded, or there is nothing to record.
    Ended,
}

impl Registered {
    /// Returns the user of the session.
    pub(crate) fn user(&self) -> &Requester {
        &self.live.data.user
    }

    /// Returns the name of the session.
    pub(crate) fn key(&self) -> &SessionKey {
        &self.live.data.key
    }

    /// Returns the time of the request for the session.
    pub(crate) fn opened_at(&self) -> Timestamp {
        self.live.data.about.opened_at
    }

    /// Returns the user and the pod of the session, for messages.
    pub(crate) fn title(&self) -> String {
        format!(
            "the session of {} in pod {} ({})",
            self.user().user,
            self.grant.pod.name,
            self.way
        )
    }

    /// Creates an audit record about the session, with an ID that is unique for each action.
    pub(crate) fn record(
        &self,
        now: Timestamp,
        action: Action,
        decision: Decision,
        reason: &str,
        message: String,
    ) -> Record {
        let mut record = self.grant.record(now, action, decision, reason, message);
        let key = self.key().to_string();
        record.id = Record::id(action, &key);
        record.user = Some(self.user().clone());
        record.detail("session", key)
    }

    /// Writes an audit record that the session is not recorded, or no longer recorded.
    pub(crate) fn note_unrecorded(&self, why: &str) {
        let message = format!("{} is not recorded: {why}", self.title());
        let (action, now) = (Action::SessionUnrecorded, self.journal.now());
        let record = self.record(now, action, Decision::Note, "NotRecorded", message);
        self.journal.trail.note(record);
    }
}

impl Session {
    /// Creates the state of a session that was registered.
    pub(crate) fn new(data: Registered, entry: Entry) -> Self {
        Self {
            _entry: entry,
            data: Arc::new(data),
            state: State::Registered,
        }
    }

    /// Begins the wait for moderators.
    pub(crate) fn waits(&mut self) {
        self.state = State::Waiting;
    }

    /// Begins the request to the API server. The recording has begun, if there is one.
    pub(crate) fn requests(&mut self, recording: Option<Writer>) {
        self.state = State::Requested(recording);
    }

    /// Begins the relay of data.
    pub(crate) fn opens(&mut self) {
        self.data.journal.metrics.opened();
        let state = std::mem::replace(&mut self.state, State::Ended);
        self.state = State::Open(match state {
            State::Requested(recording) => recording,
            _ => None,
        });
    }

    /// Begins the body of a response.
    pub(crate) fn follows(&mut self) {
        self.state = State::Followed;
    }

    /// Returns the recording of an open session.
    pub(crate) fn recording(&self) -> Option<&Writer> {
        match &self.state {
            State::Open(recording) => recording.as_ref(),
            _ => None,
        }
    }
}
