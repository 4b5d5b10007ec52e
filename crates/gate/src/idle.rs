//! Whether a session is used, and when it has not been for too long.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use jiff::SignedDuration;
use oz_core::gate::activity::Activity;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

/// When a session was last used.
#[derive(Debug)]
pub(crate) struct Idle {
    /// How long it may not be; `None` if that does not matter.
    limit: Option<Duration>,
    opened: Instant,
    /// In milliseconds after it was opened.
    used: AtomicU64,
    /// Whether it cannot be used now.
    held: AtomicBool,
}

impl Idle {
    /// A session that is used now.
    pub(crate) fn new(limit: Option<SignedDuration>) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.map(SignedDuration::unsigned_abs),
            opened: Instant::now(),
            used: AtomicU64::new(0),
            held: AtomicBool::new(false),
        })
    }

    /// That it is used.
    pub(crate) fn used(&self) {
        let now = self.opened.elapsed().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.used.store(now, Ordering::Relaxed);
    }

    /// It is held, and cannot be used meanwhile, or goes on and is as if it had been used.
    pub(crate) fn hold(&self, held: bool) {
        // First: whoever sees that it goes on sees that it is used.
        self.used();
        self.held.store(held, Ordering::Release);
    }

    /// For how long it has not been used by now.
    pub(crate) fn for_how_long(&self) -> Duration {
        let used = Duration::from_millis(self.used.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(used)
    }

    /// Ready when it was not used for too long, with how long that is.
    pub(crate) async fn over(&self) -> SignedDuration {
        let Some(limit) = self.limit else {
            return pending().await;
        };
        loop {
            let used = if self.held.load(Ordering::Acquire) {
                // It is looked at again before it can be over: its limit counts from when it goes on.
                self.opened.elapsed()
            } else {
                Duration::from_millis(self.used.load(Ordering::Relaxed))
            };
            // One beyond the end of time never comes.
            let Some(end) = self.opened.checked_add(used.saturating_add(limit)) else {
                return pending().await;
            };
            if Instant::now() >= end {
                return SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
            }
            sleep_until(end).await;
        }
    }

    /// A stream of the session, of which each use is noted.
    pub(crate) fn watch<S>(self: &Arc<Self>, stream: S, activity: &Activity) -> Watched<S> {
        let direction = || Mutex::new(activity.clone());
        let directions = Directions {
            idle: Arc::clone(self),
            read: direction(),
            written: direction(),
        };
        Watched { stream, directions }
    }
}

/// A stream that tells whether it is used.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    directions: Directions,
}

#[derive(Debug)]
struct Directions {
    idle: Arc<Idle>,
    read: Mutex<Activity>,
    written: Mutex<Activity>,
}

impl Directions {
    fn passed(&self, direction: &Mutex<Activity>, bytes: &[u8]) {
        let mut activity = direction.lock().unwrap_or_else(PoisonError::into_inner);
        if activity.passed(bytes) {
            self.idle.used();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = buffer.filled().get(before..).unwrap_or_default();
        self.directions.passed(&self.directions.read, bytes);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(length)) = &written {
            let bytes = bytes.get(..*length).unwrap_or_default();
            self.directions.passed(&self.directions.written, bytes);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

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
    async fn one_that_is_held_is_not_over_and_its_limit_counts_from_when_it_goes_on() {
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
    async fn what_is_said_either_way_prolongs_it_and_pings_do_not() {
        let idle = Idle::new(minute());
        let (mut alice, client) = duplex(1_000);
        let mut watched = idle.watch(client, &Activity::of(Some(b"websocket")));
        let (typed, printed, ping) = ([0x82, 2, 0, b'l'], [0x82, 2, 1, b'$'], [0x89, 0]);
        let started = Instant::now();
        for round in 0..6 {
            tokio::time::advance(MINUTE / 2).await;
            if round % 2 == 0 {
                alice.write_all(&typed).await.unwrap();
                watched.read_exact(&mut [0; 4]).await.unwrap();
            } else {
                watched.write_all(&printed).await.unwrap();
            }
            let over = tokio::time::timeout(MINUTE / 4, idle.over()).await;
            assert!(over.is_err(), "it ended in round {round}");
        }
        let used = Instant::now();
        assert!(started.elapsed() > MINUTE * 2);
        let pings = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(5)).await;
                alice.write_all(&ping).await.unwrap();
                watched.read_exact(&mut [0; 2]).await.unwrap();
                watched.write_all(&ping).await.unwrap();
            }
        });
        idle.over().await;
        assert!(used.elapsed() <= MINUTE, "a ping prolonged it");
        pings.abort();
    }
}
