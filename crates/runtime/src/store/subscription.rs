//! The subscribers of a store, and the duration of their subscriptions.

use std::fmt;
use std::sync::Weak;

use super::Inner;

/// The identifier of a subscriber of a store.
pub type SubscriberId = usize;

/// A subscription to changes, which lasts until it is dropped. It does not keep the store.
pub struct Subscription {
    id: SubscriberId,
    store: Weak<dyn Unsubscribe>,
}

impl Subscription {
    pub(super) fn new(id: SubscriberId, store: Weak<dyn Unsubscribe>) -> Self {
        Self { id, store }
    }

    /// Returns the identifier of the subscriber, which receives no calls for its own writes, see
    /// [`Store::wrote`](super::Store::wrote).
    #[must_use]
    pub fn id(&self) -> SubscriberId {
        self.id
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Subscription({})", self.id)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade() {
            store.unsubscribe(self.id);
        }
    }
}

pub(super) trait Unsubscribe: Send + Sync {
    fn unsubscribe(&self, id: SubscriberId);
}

impl<K: Send + Sync> Unsubscribe for Inner<K> {
    fn unsubscribe(&self, id: SubscriberId) {
        let mut subscribers = self.subscribers.write();
        let at = subscribers.iter().position(|(known, _)| *known == id);
        let callback = at.map(|at| subscribers.remove(at));
        // The callback may hold the last reference to another store.
        drop(subscribers);
        drop(callback);
    }
}
