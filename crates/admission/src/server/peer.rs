//! What is known of the peer of a connection.
//!
//! At first nothing: unknown peers share a few slots, in which none stays for long. A peer that calls a path
//! with the key in it is the API server, and has a slot of its own from then on. What a service of the
//! caller's own takes for a key is its own to say.

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

/// The slots of connections whose peers have shown the key.
#[derive(Clone, Debug)]
pub(crate) struct KnownSlots {
    all: Arc<Semaphore>,
    /// Of those that have shown nothing else.
    unproven: Arc<Semaphore>,
}

impl KnownSlots {
    /// So many, of which a part is for peers that have shown the key alone.
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(connections)),
            unproven: Arc::new(Semaphore::new(connections.div_ceil(UNPROVEN_PART))),
        }
    }
}

/// The part of the slots for peers that have shown the key alone. They are beside the others.
const UNPROVEN_PART: usize = 8;

impl Peer {
    /// One of which nothing is known. `known_slots` are for those that are.
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

    /// Its address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// It called a path with the key: from now on, its connection makes room for nobody.
    pub fn has_shown_the_key(&self) {
        self.takes_a_slot(&self.known_slots.all);
    }

    /// The same of a peer that has shown nothing else, where the key is taken for public: it has one of fewer slots.
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
            // Answered all the same, and then asked to come again.
            Err(_taken) => self.over.cancel(),
        }
    }

    /// It called a path without the key: its connection ends with the answer, unless it had shown the key
    /// before. The API server never does that. Says whether it ends.
    pub fn has_shown_no_key(&self) -> bool {
        let ends = !self.is_known();
        if ends {
            self.over.cancel();
        }
        ends
    }

    /// Ready when nothing more is answered on this connection.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Ready when the slot is needed for others, or when an unknown peer has stayed for too long.
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
