//! The queue of one controller, shared with the watches that fill it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::queue::{Lane, Queue};

/// The queue, and the notification of its changes.
pub(crate) struct Shared {
    queue: Mutex<Queue>,
    /// True if a start is queueing all objects, or has done so.
    looks: AtomicBool,
    pub(super) changed: Notify,
}

impl Shared {
    pub(crate) fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::new(Queue::new(slots)),
            looks: AtomicBool::new(false),
            changed: Notify::new(),
        })
    }

    pub(crate) fn push(&self, key: &str, lane: Lane) {
        self.queue().push(key, lane);
        self.changed.notify_one();
    }

    /// Queues a key because of a change, behind the waiting keys of its flow.
    pub(crate) fn push_of(&self, key: &str, flow: String) {
        self.queue().push_of(key, flow);
        self.changed.notify_one();
    }

    /// Gives up the slot of a running pass.
    pub(crate) fn give_up_slot(&self, key: &str) {
        self.queue().give_up_slot(key);
        self.changed.notify_one();
    }

    /// Checks whether ordinary changes are to be queued: before that, a start is going to reconcile the
    /// objects. Urgent changes are always queued.
    pub(crate) fn wants(&self, lane: Lane) -> bool {
        lane == Lane::Urgent || self.looks.load(Ordering::Acquire)
    }

    /// Queues all objects, as [`Shared::begin_with`].
    pub(super) fn start(&self, look: impl FnOnce() -> Found) {
        self.looks.store(true, Ordering::Release);
        self.begin_with(look);
    }

    /// Queues the objects that `look` returns: those that come before all others, and the rest.
    /// Pushes count from before `look`: an object that changes in the meantime is queued as well,
    /// whether or not `look` saw the change.
    pub(super) fn begin_with(&self, look: impl FnOnce() -> Found) {
        self.queue().start();
        let found = look();
        let mut queue = self.queue();
        for key in &found.opening {
            queue.push_opening(key);
        }
        for (key, flow) in found.others {
            queue.push_of(&key, flow);
        }
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }
}

/// The UIDs that a start finds, with the flows of those that may wait.
pub(super) struct Found {
    pub(super) opening: Vec<String>,
    pub(super) others: Vec<(String, String)>,
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::run::queue::{Next, Wake};

    #[test]
    fn change_during_initial_listing_is_not_lost() {
        let shared = Shared::new(4);
        shared.push("early", Lane::Ordinary);
        assert!(shared.wants(Lane::Urgent) && !shared.wants(Lane::Ordinary));
        shared.begin_with(|| Found {
            opening: Vec::new(),
            others: Vec::new(),
        });
        assert!(!shared.wants(Lane::Ordinary), "not everything is looked at");
        shared.start(|| {
            assert!(shared.wants(Lane::Ordinary));
            // A watch does this on another thread.
            shared.push("late", Lane::Ordinary);
            Found {
                opening: vec!["granted".to_owned()],
                others: vec![("waiting".to_owned(), String::new())],
            }
        });
        let mut queue = shared.queue();
        let first = queue.pop().unwrap();
        assert_eq!((first.key.as_str(), queue.pop()), ("granted", None));
        let next = Next {
            wake: Wake::At(None),
            retry: None,
            failed: false,
        };
        queue.done("granted", next, Instant::now());
        let rest = std::iter::from_fn(|| queue.pop()).map(|turn| turn.key);
        assert_eq!(rest.collect::<Vec<_>>(), ["late", "waiting"]);
    }
}
