//! Who is called back at the changes of a store, and for how long.

use std::fmt;
use std::sync::Weak;

use super::Inner;

/// Tells subscribers of a store apart.
pub type SubscriberId = usize;

/// Calls back as long as it is kept. It does not keep the store.
pub struct Subscription {
    id: SubscriberId,
    store: Weak<dyn Unsubscribe>,
}

impl Subscription {
    pub(super) fn new(id: SubscriberId, store: Weak<dyn Unsubscribe>) -> Self {
        Self { id, store }
    }

    /// Whose writes are not told back, see [`Store::wrote`](super::Store::wrote).
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
        // What it holds may be the last of another store.
        drop(subscribers);
        drop(callback);
    }
}
