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
/// The reason of a session that is not opened because its handler was dropped.
const WENT_AWAY: &str = "the client disconnected";

/// The end of a session.
pub(crate) enum End {
    /// It was not opened, for this reason.
    NotOpened(String),
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
            (Self::Terminated(why), _) => format!("the session was ended: {}", why.message),
            (Self::Closed, Some(code)) => format!("the session is over, with exit code {code}"),
            (Self::Closed, None) => "the session is over".to_owned(),
        }
    }

    /// Returns the audit record of the end.
    fn record(&self, session: &Registered, carried: Carried) -> Record {
        let title = session.title();
        let (action, reason, message) = match self {
            Self::NotOpened(why) => (
                Action::SessionEnded,
                "NotOpened",
                format!("{title} was not opened: {why}"),
            ),
            Self::Terminated(why) => (
                Action::SessionTerminated,
                why.reason,
                format!("{title} is over: {}", why.message),
            ),
            Self::Closed => (Action::SessionEnded, "Closed", format!("{title} is over")),
        };
        let now = session.journal.now();
        let record = session
            .record(now, action, Decision::End, reason, message)
            .detail("way", session.way)
            .detail("openedAt", session.opened_at().to_string());
        if let Self::NotOpened(_) = self {
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
        if !matches!(end, End::NotOpened(_)) {
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
                    End::NotOpened(_) | End::Closed => "Closed",
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
        let end = match refused.reason {
            DIFFERS => End::Terminated(refused.clone().into()),
            _ => End::NotOpened(refused.message.clone()),
        };
        self.end(&end, Carried::default());
    }

    /// Writes that the API server answered without opening the session: nothing ran. A session that RBAC or the hook
    /// refuses was never recorded as opened.
    pub(crate) fn answered(mut self, status: StatusCode) {
        if let State::Requested(recording) = &mut self.state
            && let Some(recording) = recording.take()
        {
            tokio::spawn(recording.discard());
        }
        match status {
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => self.state = State::Ended,
            _ => {
                let end = End::NotOpened(format!("the API server responded {status}"));
                self.end(&end, Carried::default());
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let State::Waiting | State::Requested(_) = self.state {
            self.end(&End::NotOpened(WENT_AWAY.to_owned()), Carried::default());
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
