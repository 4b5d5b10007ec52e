//! The close of a session: the conditions that end it, and the one place that writes its end. The connect hook records a
//! session as soon as the API server permits it, so the gate records its end in every case: also when the kubelet
//! refuses the session, when its client disconnects, or when the wait for a moderator is broken off.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use jiff::SignedDuration;
use oz_core::connect::Refusal;
use oz_gating::upgrade::DIFFERS;
use oz_trail::{Action, Decision, Record};
use tokio::runtime::Handle;

use crate::answer::Refused;
use crate::recordings;
use crate::relay::Carried;
use crate::session::{Registered, Session, State};
use crate::tape::Writer;

/// The interval within which several changes are processed together.
const COALESCE: Duration = Duration::from_millis(25);
/// The maximum interval between two checks of a session.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// The reason in the audit record if the handler of a session was dropped before the session was open.
const WENT_AWAY: &str = "the client disconnected";

/// The end of a session.
pub(crate) enum End {
    /// It was not opened, for this reason.
    NotOpened(String),
    /// It was interrupted, for this reason, while the API server was opening it: its command may have started.
    Interrupted(String),
    /// The gate terminated it.
    Terminated(Refusal),
    /// A side closed it.
    Closed,
}

impl End {
    /// Returns the end of a session that the gate terminated, if it has a reason for that.
    pub(crate) fn from_reason(why: Option<Refusal>) -> Self {
        why.map_or(Self::Closed, Self::Terminated)
    }

    /// Formats the end for the viewers and the recording.
    fn describe(&self, carried: Carried) -> String {
        match (self, carried.exit) {
            (Self::NotOpened(why), _) => why.clone(),
            (Self::Interrupted(why), _) => {
                format!("the session was interrupted while it was being opened: {why}")
            }
            (Self::Terminated(why), _) => format!("the session was ended: {}", why.message),
            (Self::Closed, Some(code)) => format!("the session is over, with exit code {code}"),
            (Self::Closed, None) => "the session is over".to_owned(),
        }
    }

    /// Returns the action, the reason and the message of the audit record for a session with this title.
    fn outcome(&self, title: &str) -> (Action, &'static str, String) {
        match self {
            Self::NotOpened(why) => (
                Action::SessionEnded,
                "NotOpened",
                format!("{title} was not opened: {why}"),
            ),
            Self::Interrupted(why) => (
                Action::SessionEnded,
                "Interrupted",
                format!(
                    "{title} was interrupted while it was being opened, and may have begun in the \
                     pod: {why}"
                ),
            ),
            Self::Terminated(why) => (
                Action::SessionTerminated,
                why.reason,
                format!("{title} is over: {}", why.message),
            ),
            Self::Closed => (Action::SessionEnded, "Closed", format!("{title} is over")),
        }
    }

    /// Checks whether the session never carried data.
    fn is_before_open(&self) -> bool {
        matches!(self, Self::NotOpened(_) | Self::Interrupted(_))
    }

    /// Returns the audit record of the end.
    fn record(&self, session: &Registered, carried: Carried) -> Record {
        let (action, reason, message) = self.outcome(&session.title());
        let now = session.journal.now();
        let record = session
            .record(now, action, Decision::End, reason, message)
            .detail("way", session.way)
            .detail("openedAt", session.opened_at().to_string());
        if self.is_before_open() {
            return record;
        }
        let mut record = record
            .detail("bytesIn", carried.inward.to_string())
            .detail("bytesOut", carried.outward.to_string());
        if let Some(by) = session.live.ended_by() {
            record = record.detail("endedBy", by.user);
        }
        match carried.exit {
            Some(code) => record.detail("exitCode", code.to_string()),
            None => record,
        }
    }
}

impl Session {
    /// Writes the end of the session: for its viewers, in the metrics, in the audit trail and in its recording, in this
    /// order. Only the first end is written.
    pub(crate) fn end(&mut self, end: &End, carried: Carried) {
        let data = &self.data;
        let how = end.describe(carried);
        if !end.is_before_open() {
            data.live.traffic.end(&how);
        }
        let recording = match mem::replace(&mut self.state, State::Ended) {
            State::Ended => return,
            // A client that watches objects may stop at any time. Its end is recorded if a user ended it.
            State::Followed if data.way == "watch" && data.live.ended_by().is_none() => return,
            State::Registered | State::Waiting | State::Followed => None,
            State::Requested(recording) => recording,
            State::Open(recording) => {
                let reason = match end {
                    End::Terminated(why) => why.reason,
                    End::NotOpened(_) | End::Interrupted(_) | End::Closed => "Closed",
                };
                let metrics = &data.journal.metrics;
                metrics.ended(reason, carried.inward, carried.outward);
                recording
            }
        };
        data.journal.trail.note(end.record(data, carried));
        // Without a runtime the process is ending, and the next process finds the recording.
        if let (Some(recording), Ok(runtime)) = (recording, Handle::try_current()) {
            let data = Arc::clone(data);
            runtime.spawn(async move { data.finish(recording, &how, carried).await });
        }
    }

    /// Writes the end of a session that failed to open. If the API server chose another protocol than planned, the gate
    /// terminated the session.
    pub(crate) fn refused(mut self, refused: &Refused) {
        let end = self.state.end_of_refused(refused);
        self.end(&end, Carried::default());
    }

    /// Writes that the API server answered without opening the session: nothing ran. A session that RBAC or the hook
    /// refuses was never recorded as opened, unlike one that the hook has permitted and a later check refuses.
    pub(crate) fn answered(mut self, status: StatusCode, permitted: bool) {
        if let State::Requested(recording) = &mut self.state
            && let Some(recording) = recording.take()
        {
            tokio::spawn(recording.discard());
        }
        match status {
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED if !permitted => {
                self.state = State::Ended;
            }
            _ => {
                let end = End::NotOpened(format!("the API server responded {status}"));
                self.end(&end, Carried::default());
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(end) = self.state.end_of_dropped() {
            self.end(&end, Carried::default());
        }
    }
}

impl State {
    /// Returns the end of a session that fails to open in this state.
    fn end_of_refused(&self, refused: &Refused) -> End {
        match (refused.reason, self) {
            (DIFFERS, _) => End::Terminated(refused.clone().into()),
            // The API server may have received the request, and its response was lost.
            ("ApiServer" | "ApiServerTimeout", Self::Requested(_)) => {
                End::Interrupted(refused.message.clone())
            }
            _ => End::NotOpened(refused.message.clone()),
        }
    }

    /// Returns the end of a session that is dropped in this state, if there is an end to record.
    fn end_of_dropped(&self) -> Option<End> {
        match self {
            Self::Waiting => Some(End::NotOpened(WENT_AWAY.to_owned())),
            Self::Requested(_) => Some(End::Interrupted(WENT_AWAY.to_owned())),
            Self::Registered | Self::Open(_) | Self::Followed | Self::Ended => None,
        }
    }
}

impl Registered {
    /// Waits until the session must end, and returns the reason; `may_be_idle` is false while the session accepts no
    /// input.
    pub(crate) async fn must_end(&self, may_be_idle: bool) -> Refusal {
        let mut changes = self.grants.changes();
        let (grant, live) = (&self.grant, &self.live);
        loop {
            changes.borrow_and_update();
            let now = self.journal.now();
            if let Err(why) = self.grants.lasts(grant, self.user(), now) {
                return why;
            }
            let left = grant.window.until.duration_since(now);
            let left = left.max(SignedDuration::ZERO).unsigned_abs();
            // The clock is asked again then: a timer may be early by as much as it rounds.
            let left = left.clamp(Duration::from_millis(1), CHECK_EVERY);
            tokio::select! {
                _ = changes.changed() => tokio::time::sleep(COALESCE.min(left)).await,
                () = tokio::time::sleep(left) => {}
                limit = live.data.idle.over(), if may_be_idle => {
                    return oz_gating::idle(grant, limit);
                }
                why = live.ended() => return why,
                () = self.slot.closing() => {
                    let message = "this replica of the gate is stopping; connect again".to_owned();
                    return Refusal { reason: "Stopping", message };
                }
            }
        }
    }

    /// Ends the recording of a session that has ended, and writes an audit record.
    async fn finish(&self, writer: Writer, how: &str, carried: Carried) {
        let Some(ended) = writer.end(how).await else {
            return;
        };
        let passed = carried.inward.saturating_add(carried.outward);
        if let Some(why) = &ended.broken {
            self.note_unrecorded(why);
        } else if passed > 0 && !ended.heard {
            // It cannot be: what passes is what was read. Whoever finds a way is to be seen.
            self.journal.metrics.nothing_recorded.inc();
            let why = format!("it carried {passed} bytes, and its recording has none of them");
            self.note_unrecorded(&why);
        }
        let (key, user) = (self.key(), self.user());
        match ended.head {
            Ok(head) => {
                let message = format!("the session {key} of {} is recorded", user.user);
                let recipients = ended.recording.recipients();
                let what = (key, &head, recipients);
                let mut record =
                    recordings::recorded(self.journal.now(), what, "Recorded", message);
                record.user = Some(user.clone());
                record.request = self.grant.request.clone();
                record.pod = Some(self.grant.pod.clone());
                recordings::on_record(&self.journal.trail, &record).await;
                if let Err(error) = ended.recording.finish().await {
                    tracing::warn!(session = %key, %error, "failed to remove a recording that is \
                        in the audit trail");
                }
            }
            Err(error) => self.note_unrecorded(&error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reason and the message of the record of this end.
    fn outcome(end: &End) -> (&'static str, String) {
        let (_, reason, message) = end.outcome("the session");
        (reason, message)
    }

    #[test]
    fn session_that_the_api_server_was_asked_for_may_have_started() {
        let dropped = |state: State| state.end_of_dropped().as_ref().map(outcome);
        let not_opened = "the session was not opened: the client disconnected";
        assert_eq!(
            dropped(State::Waiting),
            Some(("NotOpened", not_opened.to_owned()))
        );
        let interrupted = "the session was interrupted while it was being opened, and may have \
                           begun in the pod: the client disconnected";
        assert_eq!(
            dropped(State::Requested(None)),
            Some(("Interrupted", interrupted.to_owned()))
        );
        for state in [
            State::Registered,
            State::Open(None),
            State::Followed,
            State::Ended,
        ] {
            assert_eq!(dropped(state), None);
        }
    }

    #[test]
    fn session_without_a_response_of_the_api_server_may_have_started() {
        for (reason, state, expected) in [
            ("ApiServerTimeout", State::Requested(None), "Interrupted"),
            ("ApiServer", State::Requested(None), "Interrupted"),
            // The pod could not be read, before the session was requested.
            ("ApiServerTimeout", State::Waiting, "NotOpened"),
            ("QueryTooLong", State::Requested(None), "NotOpened"),
            (DIFFERS, State::Requested(None), DIFFERS),
        ] {
            let refused = Refused::unavailable(reason, "it failed");
            let end = state.end_of_refused(&refused);
            assert_eq!(outcome(&end).0, expected, "{reason}");
        }
    }
}
