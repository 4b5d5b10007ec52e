//! Whether this process should get calls, and if not, what it is waiting for.
//!
//! Made of named gates: the library has its own, and an application adds what it
//! needs to be ready itself, such as a warm cache.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// One condition of readiness. Closed until [`open`](Gate::open)ed; clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    name: Arc<str>,
    open: Arc<AtomicBool>,
}

impl Gate {
    /// A closed gate; `name` is what `/readyz` shows while it is closed.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            open: Arc::default(),
        }
    }

    /// The condition holds.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// The condition holds no longer.
    pub fn close(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// Whether the condition holds.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

/// All gates of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness(Arc<Mutex<Vec<Gate>>>);

impl Readiness {
    pub(crate) fn add(&self, gate: Gate) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(gate);
    }

    /// A new gate of the library's own.
    pub(crate) fn gate(&self, name: &str) -> Gate {
        let gate = Gate::new(name);
        self.add(gate.clone());
        gate
    }

    /// The names of the gates that are closed.
    pub(crate) fn missing(&self) -> Vec<Arc<str>> {
        let gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates
            .iter()
            .filter(|gate| !gate.is_open())
            .map(|gate| gate.name.clone())
            .collect()
    }
}
