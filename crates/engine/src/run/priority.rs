//! The order in which concurrent writes are sent to the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// The maximum time that an ordinary write waits for urgent ones, regardless of their number.
const GIVES_WAY: Duration = Duration::from_secs(2);

/// The limit of concurrent writes, for all controllers together. Each takes a connection, and more at
/// once do not make the API server faster. There are two kinds: the deletions that a plan begins with
/// do not queue behind the steps that follow them, nor behind writes that grant access; and as long
/// as they queue, no other write begins. When a hundred grants end at one instant, all hundred are
/// deleted before the first of them is reported.
#[derive(Clone, Debug)]
pub(crate) struct WriteSlots {
    urgent: Arc<Semaphore>,
    ordinary: Arc<Semaphore>,
    due: Arc<Due>,
}

/// The urgent writes that wait or are in progress.
#[derive(Debug, Default)]
struct Due {
    count: AtomicUsize,
    none_left: Notify,
}

/// The slots that a write takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// The slots for a deletion that a plan begins with.
    Urgent,
    /// The slots for all other writes.
    Ordinary,
}

/// A slot, released when this is dropped.
pub(crate) struct WriteSlot<'a> {
    /// The permit; `None` only if the slots were closed, which never happens.
    _permit: Option<SemaphorePermit<'a>>,
    _due: Option<Counted<'a>>,
}

/// A write that counts as due.
struct Counted<'a>(&'a Due);

impl<'a> Counted<'a> {
    fn new(due: &'a Due) -> Self {
        due.count.fetch_add(1, Ordering::SeqCst);
        Self(due)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none_left.notify_waiters();
        }
    }
}

impl Due {
    async fn none(&self) {
        loop {
            // Registered before the check: a write that ends in between is not missed.
            let none_left = self.none_left.notified();
            if self.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            none_left.await;
        }
    }
}

impl WriteSlots {
    /// Creates slots for this number of concurrent writes of each priority.
    pub(crate) fn new(writes: usize) -> Self {
        Self {
            urgent: Arc::new(Semaphore::new(writes)),
            ordinary: Arc::new(Semaphore::new(writes)),
            due: Arc::default(),
        }
    }

    /// Waits for a slot.
    pub(crate) async fn take(&self, priority: Priority) -> WriteSlot<'_> {
        let (slots, due) = match priority {
            Priority::Urgent => (&self.urgent, Some(Counted::new(&self.due))),
            Priority::Ordinary => {
                let _ = tokio::time::timeout(GIVES_WAY, self.due.none()).await;
                (&self.ordinary, None)
            }
        };
        WriteSlot {
            _permit: slots.acquire().await.ok(),
            _due: due,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn urgent_writes_precede_ordinary_writes_while_queued() {
        let lines = WriteSlots::new(1);
        let first = lines.take(Priority::Urgent).await;
        let mut second = Box::pin(lines.take(Priority::Urgent));
        assert!((&mut second).now_or_never().is_none(), "one at a time");
        let mut ordinary = Box::pin(lines.take(Priority::Ordinary));
        assert!((&mut ordinary).now_or_never().is_none());

        drop(first);
        let second = second.await;
        assert!((&mut ordinary).now_or_never().is_none(), "one is still due");
        drop(second);
        drop(ordinary.await);
    }

    #[tokio::test(start_paused = true)]
    async fn ordinary_write_gives_way_for_limited_time() {
        let lines = WriteSlots::new(1);
        let _due = lines.take(Priority::Urgent).await;
        let began = tokio::time::Instant::now();
        drop(lines.take(Priority::Ordinary).await);
        assert_eq!(began.elapsed(), GIVES_WAY);
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_is_not_due_any_more() {
        let lines = WriteSlots::new(1);
        let held = lines.take(Priority::Urgent).await;
        assert!(lines.take(Priority::Urgent).now_or_never().is_none());
        drop(held);
        assert!(lines.take(Priority::Ordinary).now_or_never().is_some());
    }
}
