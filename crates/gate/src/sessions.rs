//! The number of open sessions by user, and their end when the process stops.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::answer::Refused;
use crate::counts::{Counts, Reached};
use crate::message_room::MessageRoom;

/// The time that sessions may take to end after the process has requested it.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The sessions of this process.
#[derive(Debug)]
pub(crate) struct Sessions {
    open: Mutex<Open>,
    one_ended: Notify,
    closing: CancellationToken,
    messages: MessageRoom,
}

#[derive(Debug)]
struct Open {
    /// True if the process is about to stop.
    stopping: bool,
    /// True if no more sessions are opened.
    shut: bool,
    counts: Counts,
}

/// The room for one session, returned when this value is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    sessions: Arc<Sessions>,
    user: String,
}

impl Sessions {
    /// Creates room for `most` sessions, of which one user has `most_per_user`.
    pub(crate) fn new(most: usize, most_per_user: usize) -> Arc<Self> {
        Arc::new(Self {
            open: Mutex::new(Open {
                stopping: false,
                shut: false,
                counts: Counts::new(most, most_per_user),
            }),
            one_ended: Notify::new(),
            closing: CancellationToken::new(),
            messages: MessageRoom::default(),
        })
    }

    /// Takes room for one more session of this user.
    pub(crate) fn take(self: &Arc<Self>, user: &str) -> Result<Slot, Refused> {
        let mut open = self.open();
        if open.shut {
            let message = "this replica of the gate is stopping; try again";
            return Err(Refused::unavailable("Stopping", message));
        }
        let message = match open.counts.add(user) {
            Ok(()) => {
                return Ok(Slot {
                    sessions: Arc::clone(self),
                    user: user.to_owned(),
                });
            }
            Err(Reached::PerUser(theirs)) => format!(
                "{user} has {theirs} open sessions, which is the maximum for a user \
                 (gate.maxSessionsPerUser); close one"
            ),
            Err(Reached::Total(all)) => format!(
                "{all} sessions are open, which is the maximum of the gate (gate.maxSessions); try \
                    again later"
            ),
        };
        let status = StatusCode::TOO_MANY_REQUESTS;
        Err(Refused::new(status, "TooManySessions", message))
    }

    /// Continues to open sessions for `settle`, since clients may not yet know that the process stops; then opens no
    /// more. Waits until no session is open, and ends the sessions that are open after `limit`.
    pub(crate) async fn drain(&self, settle: Duration, limit: Duration) {
        self.open().stopping = true;
        tokio::time::sleep(settle).await;
        self.open().shut = true;
        let all = async {
            loop {
                let ended = self.one_ended.notified();
                if self.open().counts.all() == 0 {
                    return;
                }
                ended.await;
            }
        };
        let mut all = std::pin::pin!(all);
        let left = limit.saturating_sub(settle);
        if tokio::time::timeout(left, &mut all).await.is_err() {
            tracing::warn!(
                open = self.open().counts.all(),
                "ending the sessions that are open"
            );
            self.closing.cancel();
            // The messages at the end of the sessions, and the rest of their recordings, take a moment.
            let _ = tokio::time::timeout(END_TIMEOUT, all).await;
        }
    }

    /// Checks whether the process is about to stop: clients had better send the next session to another replica.
    pub(crate) fn are_ending(&self) -> bool {
        self.open().stopping
    }

    /// Waits until open sessions have to end because the process stops.
    async fn closing(&self) {
        self.closing.cancelled().await;
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }
}

impl Slot {
    /// Waits until the session has to end because the process stops.
    pub(crate) async fn closing(&self) {
        self.sessions.closing().await;
    }

    /// Returns the room for messages that are being read, which all sessions share.
    pub(crate) fn message_room(&self) -> &MessageRoom {
        &self.sessions.messages
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.sessions.open().counts.remove(&self.user);
        self.sessions.one_ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_limit_per_user_leaves_room_for_other_users() {
        let sessions = Sessions::new(3, 2);
        let first = sessions.take("alice").unwrap();
        let _second = sessions.take("alice").unwrap();
        assert_eq!(
            sessions.take("alice").unwrap_err().reason,
            "TooManySessions"
        );
        let _third = sessions.take("bob").unwrap();
        let full = sessions.take("carol").unwrap_err();
        assert!(
            full.message.contains("gate.maxSessions)"),
            "{}",
            full.message
        );
        drop(first);
        assert!(sessions.take("carol").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_stops_waits_for_sessions_and_then_ends_them() {
        let sessions = Sessions::new(3, 3);
        let slot = sessions.take("alice").unwrap();
        let (settle, limit) = (Duration::from_secs(5), Duration::from_secs(60));
        let began = tokio::time::Instant::now();
        let draining = tokio::spawn({
            let sessions = Arc::clone(&sessions);
            async move { sessions.drain(settle, limit).await }
        });
        tokio::time::sleep(settle / 2).await;
        assert!(sessions.are_ending());
        drop(sessions.take("bob").unwrap());
        sessions.closing().await;
        assert_eq!(began.elapsed(), limit);
        draining.await.unwrap();
        assert_eq!(sessions.take("bob").unwrap_err().reason, "Stopping");
        drop(slot);
        // No session is open: the drain does not wait.
        sessions.drain(settle, Duration::MAX).await;
    }
}
