//! The idle timeout: whether a session is used, and when it has been unused for too long.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::{Instant, sleep_until};

/// The time at which a session was last used.
#[derive(Debug)]
pub(crate) struct Idle {
    /// The idle timeout; `None` if the session has none.
    limit: Option<Duration>,
    opened: Instant,
    /// The time of the last use, in milliseconds after the session was opened.
    used: AtomicU64,
    /// True if the session cannot be used now because it is held.
    held: AtomicBool,
    /// True if the session cannot be used now because it is slowed down.
    slowed: AtomicBool,
}

impl Idle {
    /// Creates the state of a session that is used now.
    pub(crate) fn new(limit: Option<SignedDuration>) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.map(SignedDuration::unsigned_abs),
            opened: Instant::now(),
            used: AtomicU64::new(0),
            held: AtomicBool::new(false),
            slowed: AtomicBool::new(false),
        })
    }

    /// Records a use of the session.
    pub(crate) fn used(&self) {
        let now = self.opened.elapsed().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.used.store(now, Ordering::Relaxed);
    }

    /// Records that the session is held and cannot be used, or that it continues, which counts as a use.
    pub(crate) fn hold(&self, held: bool) {
        // Before the change: a reader that sees that the session continues also sees the use.
        self.used();
        self.held.store(held, Ordering::Release);
    }

    /// Records that the session is stopped because it is slowed down and cannot be used, or that it continues, which
    /// counts as a use.
    pub(crate) fn slow(&self, slowed: bool) {
        self.used();
        self.slowed.store(slowed, Ordering::Release);
    }

    fn cannot_be_used(&self) -> bool {
        self.held.load(Ordering::Acquire) || self.slowed.load(Ordering::Acquire)
    }

    /// Returns the time since the last use.
    pub(crate) fn for_how_long(&self) -> Duration {
        let used = Duration::from_millis(self.used.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(used)
    }

    /// Waits until the session was unused for too long, and returns its limit.
    pub(crate) async fn over(&self) -> SignedDuration {
        let Some(limit) = self.limit else {
            return pending().await;
        };
        loop {
            let used = if self.cannot_be_used() {
                // The loop checks again before the session can end: the limit counts from the continuation.
                self.opened.elapsed()
            } else {
                Duration::from_millis(self.used.load(Ordering::Relaxed))
            };
            // An instant beyond the range of the clock is never reached.
            let Some(end) = self.opened.checked_add(used.saturating_add(limit)) else {
                return pending().await;
            };
            if Instant::now() >= end {
                return SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
            }
            sleep_until(end).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn minute() -> Option<SignedDuration> {
        Some(SignedDuration::from_mins(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_of_which_nothing_is_heard_is_over_after_its_limit_to_the_second() {
        let started = Instant::now();
        let idle = Idle::new(minute());
        assert_eq!(idle.over().await, SignedDuration::from_mins(1));
        assert_eq!(started.elapsed().as_secs(), 60);
        let idle = Idle::new(None);
        assert!(
            tokio::time::timeout(MINUTE * 10_000, idle.over())
                .await
                .is_err()
        );
        let idle = Idle::new(Some(SignedDuration::MAX));
        assert!(tokio::time::timeout(MINUTE, idle.over()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_timeout_restarts_when_held_session_resumes() {
        let idle = Idle::new(minute());
        tokio::time::advance(MINUTE / 2).await;
        idle.hold(true);
        let over = tokio::time::timeout(MINUTE * 5 / 2, idle.over()).await;
        assert!(over.is_err(), "it is over while it is held");
        idle.hold(false);
        let goes_on = Instant::now();
        idle.over().await;
        assert_eq!(goes_on.elapsed(), MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn session_that_is_held_and_slowed_is_over_after_neither_holds() {
        let idle = Idle::new(minute());
        idle.hold(true);
        idle.slow(true);
        idle.hold(false);
        let over = tokio::time::timeout(MINUTE * 5, idle.over()).await;
        assert!(over.is_err(), "it is over while it is slowed down");
        idle.slow(false);
        let goes_on = Instant::now();
        idle.over().await;
        assert_eq!(goes_on.elapsed(), MINUTE);
    }
}
