//! Shared memory.
//!
//! Large requests wait for other large requests; small requests have a separate part, so that a few large
//! reviews do not delay the many small ones.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// The unit of counts, so that they fit.
const UNIT: usize = 1 << 10;

/// A budget of shared memory.
#[derive(Debug)]
pub(crate) struct Budget {
    small: Lane,
    large: Lane,
    /// The size above which a request is large.
    threshold: usize,
}

#[derive(Debug)]
struct Lane {
    units: Semaphore,
    total: u32,
}

impl Lane {
    fn new(bytes: usize) -> Self {
        let total = units(bytes).max(1);
        Self {
            units: Semaphore::new(usize::try_from(total).unwrap_or(usize::MAX)),
            total,
        }
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

impl Budget {
    /// Creates a budget of `bytes`, of which a quarter is for requests of at most `threshold`.
    pub(crate) fn new(bytes: usize, threshold: usize) -> Self {
        Self {
            small: Lane::new(bytes / 4),
            large: Lane::new(bytes - bytes / 4),
            threshold,
        }
    }

    /// Takes `bytes` until the returned permit is dropped. A request that exceeds the whole budget gets the
    /// whole budget. Returns `None` if others hold the memory for longer than `wait`.
    pub(crate) async fn take(&self, bytes: usize, wait: Duration) -> Option<SemaphorePermit<'_>> {
        let lane = if bytes <= self.threshold {
            &self.small
        } else {
            &self.large
        };
        let wanted = lane.units.acquire_many(units(bytes).min(lane.total));
        tokio::time::timeout(wait, wanted).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn large_ones_wait_for_each_other_and_small_ones_for_none_of_them() {
        let budget = Budget::new(400 << 10, 10 << 10);
        let large = budget.take(200 << 10, WAIT).await;
        assert!(large.is_some());
        assert!(budget.take(200 << 10, WAIT).await.is_none());
        for _ in 0..10 {
            assert!(budget.take(10 << 10, WAIT).await.is_some());
        }
        drop(large);
        assert!(budget.take(200 << 10, WAIT).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn request_larger_than_budget_takes_whole_budget() {
        let budget = Budget::new(400 << 10, 10 << 10);
        let giant = budget.take(usize::MAX, WAIT).await;
        assert!(giant.is_some());
        assert!(budget.take(11 << 10, WAIT).await.is_none());
    }
}
