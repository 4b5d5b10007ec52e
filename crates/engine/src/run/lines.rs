//! In which order writes go to the API server when many want to at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// How long an ordinary write gives way at most, whatever else is due.
const GIVES_WAY: Duration = Duration::from_secs(2);

/// How many writes may be under way at once, for all controllers together. Each takes a
/// connection, and more at once do not make the API server faster. Two lines: what takes something
/// away first thing does not queue behind what comes after it, nor behind what gives something; and
/// as long as it queues, nothing else begins. When a hundred grants end at one instant, all hundred
/// are taken away before the first of them is reported.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    express: Arc<Semaphore>,
    ordinary: Arc<Semaphore>,
    due: Arc<Due>,
}

/// The express writes that wait or are under way.
#[derive(Debug, Default)]
struct Due {
    count: AtomicUsize,
    none_left: Notify,
}

/// Which line a write takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// For a deletion that a plan begins with.
    Express,
    /// For everything else.
    Ordinary,
}

/// A place in a line, given up when this is dropped.
pub(crate) struct Place<'a> {
    /// `None` only if the line was closed, which nobody does.
    _permit: Option<SemaphorePermit<'a>>,
    _due: Option<Counted<'a>>,
}

/// One that counts as due.
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
            // Registered before the look: what ends in between is not missed.
            let none_left = self.none_left.notified();
            if self.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            none_left.await;
        }
    }
}

impl Lines {
    /// Lines that each let so many writes through at once.
    pub(crate) fn new(writes: usize) -> Self {
        Self {
            express: Arc::new(Semaphore::new(writes)),
            ordinary: Arc::new(Semaphore::new(writes)),
            due: Arc::default(),
        }
    }

    /// Waits for a place.
    pub(crate) async fn place(&self, line: Line) -> Place<'_> {
        let (line, due) = match line {
            Line::Express => (&self.express, Some(Counted::new(&self.due))),
            Line::Ordinary => {
                let _ = tokio::time::timeout(GIVES_WAY, self.due.none()).await;
                (&self.ordinary, None)
            }
        };
        Place {
            _permit: line.acquire().await.ok(),
            _due: due,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_takes_access_away_goes_first_as_long_as_it_queues() {
        let lines = Lines::new(1);
        let first = lines.place(Line::Express).await;
        let mut second = Box::pin(lines.place(Line::Express));
        assert!((&mut second).now_or_never().is_none(), "one at a time");
        let mut ordinary = Box::pin(lines.place(Line::Ordinary));
        assert!((&mut ordinary).now_or_never().is_none());

        drop(first);
        let second = second.await;
        assert!((&mut ordinary).now_or_never().is_none(), "one is still due");
        drop(second);
        drop(ordinary.await);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_gives_way_for_ever() {
        let lines = Lines::new(1);
        let _due = lines.place(Line::Express).await;
        let began = tokio::time::Instant::now();
        drop(lines.place(Line::Ordinary).await);
        assert_eq!(began.elapsed(), GIVES_WAY);
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_is_not_due_any_more() {
        let lines = Lines::new(1);
        let held = lines.place(Line::Express).await;
        assert!(lines.place(Line::Express).now_or_never().is_none());
        drop(held);
        assert!(lines.place(Line::Ordinary).now_or_never().is_some());
    }
}
