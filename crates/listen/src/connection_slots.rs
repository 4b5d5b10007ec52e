//! A bounded number of connections from clients that are not yet identified.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

/// A fixed number of slots, of which one address can hold a limited number. If all are taken, a new
/// connection takes the slot of the oldest.
#[derive(Debug)]
pub struct ConnectionSlots {
    limit: usize,
    per_peer: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// The connections, the oldest first.
    connections: BTreeMap<u64, (IpAddr, CancellationToken)>,
}

/// A slot of [`ConnectionSlots`], which is freed when this value is dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    number: u64,
    evicted: CancellationToken,
}

impl ConnectionSlots {
    /// Creates `limit` slots, of which one address has at most `per_peer`.
    #[must_use]
    pub fn new(limit: usize, per_peer: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(1),
            per_peer: per_peer.max(1),
            taken: Mutex::default(),
        })
    }

    /// Assigns a slot to a connection, and evicts another connection if no slot is free.
    pub fn take(self: &Arc<Self>, peer: IpAddr) -> ConnectionSlot {
        let evicted = CancellationToken::new();
        let peer = peer.to_canonical();
        let mut taken = self.taken();
        let of_peer = taken
            .connections
            .values()
            .filter(|(it, _)| *it == peer)
            .count();
        let oldest = if of_peer >= self.per_peer {
            taken.connections.iter().find(|(_, (it, _))| *it == peer)
        } else if taken.connections.len() >= self.limit {
            taken.connections.iter().next()
        } else {
            None
        };
        if let Some(number) = oldest.map(|(number, _)| *number)
            && let Some((_, other)) = taken.connections.remove(&number)
        {
            other.cancel();
        }
        let number = taken.next;
        taken.next += 1;
        taken.connections.insert(number, (peer, evicted.clone()));
        drop(taken);
        ConnectionSlot {
            slots: self.clone(),
            number,
            evicted,
        }
    }

    /// Returns the number of taken slots.
    pub fn len(&self) -> usize {
        self.taken().connections.len()
    }

    /// Checks whether no slot is taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock()
    }
}

impl ConnectionSlot {
    /// Waits until another connection takes the slot.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Frees the slot once the client of the connection is identified; the connection can no longer be
    /// evicted.
    pub fn release(&self) {
        self.slots.taken().connections.remove(&self.number);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn is_evicted(slot: &ConnectionSlot) -> bool {
        slot.evicted.is_cancelled()
    }

    #[test]
    fn the_oldest_is_evicted() {
        let slots = ConnectionSlots::new(2, 2);
        let (first, second) = (slots.take(from(1)), slots.take(from(2)));
        let third = slots.take(from(3));
        assert!(is_evicted(&first));
        assert!(!is_evicted(&second) && !is_evicted(&third));
        drop(first);
        assert_eq!(slots.len(), 2);
    }

    #[test]
    fn an_address_beyond_its_share_evicts_its_own() {
        let slots = ConnectionSlots::new(10, 2);
        let other = slots.take(from(9));
        let many: Vec<_> = (0..5).map(|_| slots.take(from(1))).collect();
        let evicted: Vec<_> = many.iter().map(is_evicted).collect();
        assert_eq!(evicted, [true, true, true, false, false]);
        assert!(!is_evicted(&other));
        assert_eq!(slots.len(), 3);
    }

    #[test]
    fn an_address_is_the_same_in_the_form_of_version_6() {
        let slots = ConnectionSlots::new(10, 1);
        let first = slots.take(from(1));
        let _second = slots.take("::ffff:10.0.0.1".parse().unwrap());
        assert!(is_evicted(&first));
    }

    #[test]
    fn a_slot_that_was_released_is_not_evicted() {
        let slots = ConnectionSlots::new(1, 1);
        let known = slots.take(from(1));
        known.release();
        let _many: Vec<_> = (0..5).map(|_| slots.take(from(1))).collect();
        assert!(!is_evicted(&known));
        drop(known);
        assert_eq!(slots.len(), 1, "no other slot is given back");
    }
}
