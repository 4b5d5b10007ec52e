//! What is known of whoever is at the other end of a connection.
//!
//! At first nothing: strangers share a small room, in which nobody stays for long. Who asks by the
//! key in the paths is the API server, and has a place of its own from then on.

use std::{
    future::pending,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use oz_listen::Guest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// One connection's other end.
#[derive(Debug)]
pub(crate) struct Visitor {
    guest: Guest,
    known: AtomicBool,
    places: Arc<Semaphore>,
    place: OnceLock<OwnedSemaphorePermit>,
    over: CancellationToken,
}

impl Visitor {
    /// Somebody new. `places` are those for visitors who are known.
    pub(crate) fn new(guest: Guest, places: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self {
            guest,
            known: AtomicBool::new(false),
            places,
            place: OnceLock::new(),
            over: CancellationToken::new(),
        })
    }

    /// Has asked by the key.
    pub(crate) fn knows_the_key(&self) {
        if self.known.swap(true, Ordering::Relaxed) {
            return;
        }
        self.guest.depart();
        match self.places.clone().try_acquire_owned() {
            Ok(place) => drop(self.place.set(place)),
            // Answered all the same, and then asked to come again.
            Err(_taken) => self.over.cancel(),
        }
    }

    /// Has asked without the key. Nobody who knows it does.
    pub(crate) fn is_lost(&self) {
        if !self.is_known() {
            self.over.cancel();
        }
    }

    /// Ready when nothing more is answered on this connection.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Ready when the room is needed for others, or when somebody unknown has stayed for too long.
    pub(crate) async fn turned_away(&self, limit: Duration) {
        tokio::select! {
            () = self.guest.sent_away() => {}
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
