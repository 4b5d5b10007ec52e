//! The usage of the spool, in total and by user, by open parts as well as by waiting parts. A user has a share, beyond
//! which the user's sessions are slowed down: the gate reads no more from their clients and containers until enough was
//! stored. Data that the gate has read is recorded in any case, as long as the spool has room.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::meters::SpoolMeters;

/// The maximum room that one more recording requires: a part.
const PART_ROOM: u64 = 4 << 20;
/// The number of shares in the spool. More users may have one; then the spool may be full before any of their shares
/// is.
const SHARES: u64 = 8;
/// The interval of the log line that the share of a user is taken.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The error of a spool without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to record: recordings that wait to be stored use {used} of {limit} bytes; check \
     gate.recordings.url and the gate's log for the cause, or raise gate.recordings.spool.mebibytes"
)]
pub(crate) struct Full {
    /// The number of used bytes.
    pub(crate) used: u64,
    /// The capacity in bytes.
    pub(crate) limit: u64,
}

/// The error of a share without room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "recordings of {user} that wait to be stored use {used} of the {limit} bytes of one user (an \
     eighth of gate.recordings.spool.mebibytes); try again when some of them are stored"
)]
pub(crate) struct ShareFull {
    user: String,
    used: u64,
    limit: u64,
}

#[derive(Debug)]
pub(super) struct Usage {
    used: AtomicU64,
    limit: u64,
    /// The shares by user; `None` for recordings without a known user.
    shares: Mutex<HashMap<Option<String>, Arc<Share>>>,
    meters: SpoolMeters,
}

/// The usage of the spool by one user.
#[derive(Debug)]
pub(crate) struct Share {
    /// The user; `None` if the user is not known.
    user: Option<String>,
    limit: u64,
    taken: Mutex<Taken>,
    /// Notifies of a share that becomes full, or stops being full.
    changed: Notify,
    meters: SpoolMeters,
}

#[derive(Debug, Default)]
struct Taken {
    /// The bytes in the spool.
    used: u64,
    /// The bytes of lines in memory that are about to be written to the spool.
    coming: u64,
    /// True if the user's sessions are slowed down.
    is_full: bool,
    warned: Option<Instant>,
}

impl Usage {
    pub(super) fn new(limit: u64, meters: SpoolMeters) -> Self {
        let gauge = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        meters.limits.spool.set(gauge(limit));
        meters.limits.share.set(gauge(limit / SHARES));
        Self {
            used: AtomicU64::new(0),
            limit,
            shares: Mutex::default(),
            meters,
        }
    }

    /// Returns the share of a user, or the common share of recordings without a known user.
    pub(super) fn share(&self, user: Option<&str>) -> Arc<Share> {
        let mut shares = self.shares.lock();
        // An empty share of a user without recordings is made anew when it is needed.
        shares.retain(|_, share| Arc::strong_count(share) > 1 || share.taken().used > 0);
        let user = user.filter(|user| !user.is_empty()).map(ToOwned::to_owned);
        let share = shares.entry(user.clone()).or_insert_with(|| {
            Arc::new(Share {
                user,
                limit: self.limit / SHARES,
                taken: Mutex::default(),
                changed: Notify::new(),
                meters: self.meters.clone(),
            })
        });
        Arc::clone(share)
    }

    pub(super) fn full(&self) -> Full {
        Full {
            used: self.used.load(Ordering::SeqCst),
            limit: self.limit,
        }
    }

    /// Checks whether one more recording has room.
    pub(super) fn room(&self) -> Result<(), Full> {
        let full = self.full();
        if full.used.saturating_add(room_of(self.limit)) > self.limit {
            return Err(full);
        }
        Ok(())
    }

    /// Takes bytes for a user, if the spool has them: also beyond the user's share, as data that was read is recorded.
    pub(super) fn take(&self, share: &Share, bytes: u64) -> Result<(), Full> {
        let taken = self
            .used
            .try_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
                used.checked_add(bytes).filter(|used| *used <= self.limit)
            });
        self.show();
        let taken = taken.map(drop).map_err(|used| Full {
            used,
            limit: self.limit,
        });
        taken.inspect(|()| share.update(|taken| taken.used += bytes))
    }

    /// Takes bytes, also beyond the limit: they are on the disk already.
    pub(super) fn take_anyway(&self, share: &Share, bytes: u64) {
        self.replace(share, 0, bytes);
    }

    /// Takes the bytes of a sealed part, also beyond the limit, and returns those of the open part.
    pub(super) fn replace(&self, share: &Share, open: u64, sealed: u64) {
        self.used.fetch_add(sealed, Ordering::SeqCst);
        self.used.fetch_sub(open, Ordering::SeqCst);
        share.update(|taken| taken.used = taken.used.saturating_add(sealed).saturating_sub(open));
        self.show();
    }

    pub(super) fn give_back(&self, share: &Share, bytes: u64) {
        self.replace(share, bytes, 0);
    }

    fn show(&self) {
        let used = self.used.load(Ordering::SeqCst);
        self.meters
            .bytes
            .set(i64::try_from(used).unwrap_or(i64::MAX));
    }
}

/// Returns the room, out of a limit, that one more recording requires, or that sessions require to continue.
fn room_of(limit: u64) -> u64 {
    PART_ROOM.min(limit / 8)
}

impl Share {
    /// Checks whether sessions are slowed down: from the time when the whole share is taken, until it has room for a
    /// part.
    pub(crate) fn is_full(&self) -> bool {
        self.taken().is_full
    }

    /// Checks whether another session may be opened.
    ///
    /// # Errors
    /// When the share is full; the error contains the usage and the next step.
    pub(crate) fn room(&self) -> Result<(), ShareFull> {
        let taken = self.taken();
        if !taken.is_full {
            return Ok(());
        }
        Err(ShareFull {
            user: self.user.clone().unwrap_or_default(),
            used: taken.used,
            limit: self.limit,
        })
    }

    /// Waits for the next change, from now on, to or from a full share.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits until the share is not full.
    pub(crate) async fn resumes(&self) {
        loop {
            let changed = self.changed();
            if !self.is_full() {
                return;
            }
            changed.await;
        }
    }

    /// Adds bytes that are about to be written to the spool.
    pub(crate) fn expects(&self, bytes: usize) {
        self.update(|taken| taken.coming = taken.coming.saturating_add(bytes as u64));
    }

    /// Removes expected bytes that were written to the spool, or are not going to be.
    pub(crate) fn came(&self, bytes: usize) {
        self.update(|taken| taken.coming = taken.coming.saturating_sub(bytes as u64));
    }

    fn update(&self, change: impl FnOnce(&mut Taken)) {
        let mut taken = self.taken();
        change(&mut taken);
        let all = taken.used.saturating_add(taken.coming);
        let was_full = taken.is_full;
        // Not with each byte that is given back: every part that is closed for lack of room is a file.
        let limit = match was_full {
            true => self.limit - room_of(self.limit) + 1,
            false => self.limit,
        };
        taken.is_full = all >= limit;
        if taken.is_full == was_full {
            return;
        }
        if self.user.is_some() {
            let change = if was_full { -1 } else { 1 };
            self.meters.shares_full.inc_by(change);
        }
        let warns = |warned: Instant| warned.elapsed() >= WARN_INTERVAL;
        if taken.is_full && taken.warned.is_none_or(warns) {
            taken.warned = Some(Instant::now());
            tracing::warn!(
                user = self.user,
                used = taken.used,
                limit = self.limit,
                "recordings of one user use their whole share of the spool; their sessions are \
                 slowed down until some are stored"
            );
        }
        drop(taken);
        self.changed.notify_waiters();
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock()
    }
}

#[cfg(test)]
impl Share {
    /// Returns the number of bytes in the spool.
    pub(crate) fn used(&self) -> u64 {
        self.taken().used
    }
}

#[cfg(test)]
mod tests;
