//! What waits for a server, bounded and in order, and what a server says of when to try again: for the audit
//! collector, and for those that are notified.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// What waits. Clones share it.
pub(crate) struct Spool<T> {
    waiting: Arc<Mutex<VecDeque<Arc<T>>>>,
    more: Arc<Notify>,
    bound: usize,
}

impl<T> Clone for Spool<T> {
    fn clone(&self) -> Self {
        Self {
            waiting: Arc::clone(&self.waiting),
            more: Arc::clone(&self.more),
            bound: self.bound,
        }
    }
}

impl<T> Spool<T> {
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            waiting: Arc::default(),
            more: Arc::default(),
            bound: bound.max(1),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Arc<T>>> {
        self.waiting.lock()
    }

    /// Adds one; returns how many of the oldest had to go for it.
    pub(crate) fn push(&self, one: T) -> u64 {
        let mut waiting = self.waiting();
        let mut lost = 0;
        while waiting.len() >= self.bound {
            waiting.pop_front();
            lost += 1;
        }
        waiting.push_back(Arc::new(one));
        self.more.notify_one();
        lost
    }

    /// The oldest, as soon as there is one.
    pub(crate) async fn first(&self) -> Arc<T> {
        loop {
            let first = self.waiting().front().cloned();
            if let Some(first) = first {
                return first;
            }
            self.more.notified().await;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting().len()
    }

    /// It is done with. Gives whether it was there still: it may have gone for others.
    pub(crate) fn remove(&self, one: &Arc<T>) -> bool {
        let mut waiting = self.waiting();
        let is_first = waiting.front().is_some_and(|front| Arc::ptr_eq(front, one));
        if is_first {
            waiting.pop_front();
        }
        is_first
    }
}

/// How long a server asks to be left alone, within bounds. A date (RFC 9110, section 10.2.3) is not understood, and
/// taken as if it said nothing.
pub(crate) fn asked_pause(
    headers: &HeaderMap,
    bounds: RangeInclusive<Duration>,
) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds).clamp(*bounds.start(), *bounds.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_goes_for_a_further_one_and_what_has_gone_is_not_removed_again() {
        let spool = Spool::new(2);
        assert_eq!((spool.push(1), spool.push(2)), (0, 0));
        let oldest = spool.first().await;
        assert_eq!((*oldest, spool.push(3), spool.len()), (1, 1, 2));
        assert!(!spool.remove(&oldest));
        let next = spool.first().await;
        assert!(*next == 2 && spool.remove(&next));
        assert_eq!((*spool.first().await, spool.len()), (3, 1));
    }
}
