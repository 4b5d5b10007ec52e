//! A limited queue of items for a server, in order, and the retry interval that a server requests: for the audit
//! collector and for the servers of notifications.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// A queue of waiting items. Clones share it.
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

    /// Adds an item; returns the number of oldest items that were dropped for it.
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

    /// Waits for the oldest item and returns it.
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

    /// Removes an item that is done. Returns whether it was still in the queue: it may have been dropped for newer
    /// ones.
    pub(crate) fn remove(&self, one: &Arc<T>) -> bool {
        let mut waiting = self.waiting();
        let is_first = waiting.front().is_some_and(|front| Arc::ptr_eq(front, one));
        if is_first {
            waiting.pop_front();
        }
        is_first
    }
}

/// Returns the pause that a server requests, within limits. A date (RFC 9110, section 10.2.3) is not supported and is
/// ignored.
/// See <https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3>.
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
