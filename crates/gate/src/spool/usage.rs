//! How much of the spool is taken: by parts that are open as well as by those that wait.

use std::sync::atomic::{AtomicU64, Ordering};

use super::meters::SpoolMeters;

/// How much has to be left for one more recording, at most: a part.
const PART_ROOM: u64 = 4 << 20;

/// The spool has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to record: {used} of {limit} bytes are taken by recordings that wait to be stored; see whether \
     --recordings can be reached, or raise --recording-spool-bytes"
)]
pub(crate) struct Full {
    /// How many bytes are taken.
    pub(crate) used: u64,
    /// How many there are.
    pub(crate) limit: u64,
}

#[derive(Debug)]
pub(super) struct Usage {
    used: AtomicU64,
    limit: u64,
    meters: SpoolMeters,
}

impl Usage {
    pub(super) fn new(limit: u64, meters: SpoolMeters) -> Self {
        meters.limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
        Self {
            used: AtomicU64::new(0),
            limit,
            meters,
        }
    }

    pub(super) fn full(&self) -> Full {
        Full {
            used: self.used.load(Ordering::SeqCst),
            limit: self.limit,
        }
    }

    /// Whether one more recording has room.
    pub(super) fn room(&self) -> Result<(), Full> {
        let full = self.full();
        let needed = PART_ROOM.min(self.limit / 8);
        if full.used.saturating_add(needed) > self.limit {
            return Err(full);
        }
        Ok(())
    }

    /// Takes bytes, if there are as many.
    pub(super) fn take(&self, bytes: u64) -> Result<(), Full> {
        let taken = self
            .used
            .try_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
                used.checked_add(bytes).filter(|used| *used <= self.limit)
            });
        self.show();
        taken.map(drop).map_err(|used| Full {
            used,
            limit: self.limit,
        })
    }

    /// Takes bytes, also beyond the limit: what is sealed takes the place of what was open, but is there first.
    pub(super) fn take_anyway(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::SeqCst);
        self.show();
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        self.show();
    }

    fn show(&self) {
        let used = self.used.load(Ordering::SeqCst);
        self.meters
            .bytes
            .set(i64::try_from(used).unwrap_or(i64::MAX));
    }
}
