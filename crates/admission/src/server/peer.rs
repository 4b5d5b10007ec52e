//! The state of the peer of a connection.
//!
//! At first the peer is unknown: unknown peers share a few slots, which none keeps for long. A peer that
//! calls a path with the key in it is the API server, and has a dedicated slot from then on. A service of
//! the calling program defines its own key.

use std::{
    future::pending,
    net::IpAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use oz_listen::ConnectionSlot;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The peer of one connection.
#[derive(Debug)]
pub struct Peer {
    address: IpAddr,
    slot: ConnectionSlot,
    known: AtomicBool,
    known_slots: KnownSlots,
    known_slot: OnceLock<OwnedSemaphorePermit>,
    over: CancellationToken,
}

/// The slots of connections from peers that presented the key.
#[derive(Clone, Debug)]
pub(crate) struct KnownSlots {
    all: Arc<Semaphore>,
    /// The slots of peers that presented nothing else.
    unproven: Arc<Semaphore>,
}

impl KnownSlots {
    /// Creates `connections` slots, and a part of that number for peers that presented the key alone.
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(connections)),
            unproven: Arc::new(Semaphore::new(connections.div_ceil(UNPROVEN_PART))),
        }
    }
}

/// The divisor of the slots for peers that presented the key alone. These slots are additional.
const UNPROVEN_PART: usize = 8;

impl Peer {
    /// Creates an unknown peer. `known_slots` are for known peers.
    pub(crate) fn new(address: IpAddr, slot: ConnectionSlot, known_slots: KnownSlots) -> Arc<Self> {
        Arc::new(Self {
            address: address.to_canonical(),
            slot,
            known: AtomicBool::new(false),
            known_slots,
            known_slot: OnceLock::new(),
            over: CancellationToken::new(),
        })
    }

    /// Returns the address of the peer.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Records that the peer called a path with the key: from now on, its connection is not evicted for
    /// others.
    pub fn has_shown_the_key(&self) {
        self.takes_a_slot(&self.known_slots.all);
    }

    /// Records the same for a peer that presented nothing else, if the key counts as public: it takes one
    /// of fewer slots.
    pub(crate) fn has_shown_the_key_alone(&self) {
        self.takes_a_slot(&self.known_slots.unproven);
    }

    fn takes_a_slot(&self, slots: &Arc<Semaphore>) {
        if self.known.swap(true, Ordering::Relaxed) {
            return;
        }
        self.slot.release();
        match slots.clone().try_acquire_owned() {
            Ok(slot) => drop(self.known_slot.set(slot)),
            // The call is answered, and the peer must then connect again.
            Err(_taken) => self.over.cancel(),
        }
    }

    /// Records that the peer called a path without the key: its connection ends with the response, unless
    /// the peer presented the key before. The API server never calls such a path. Returns whether the
    /// connection ends.
    pub fn has_shown_no_key(&self) -> bool {
        let ends = !self.is_known();
        if ends {
            self.over.cancel();
        }
        ends
    }

    /// Waits until no further request is answered on this connection.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Waits until others take the slot, or until an unknown peer has stayed for too long.
    pub(crate) async fn evicted(&self, limit: Duration) {
        tokio::select! {
            () = self.slot.evicted() => {}
            () = tokio::time::sleep(limit) => {}
        }
        if self.is_known() {
            pending::<()>().await;
        }
    }

    fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }
}
