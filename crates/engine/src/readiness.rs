//! What this process still waits for, by name, so that a probe says more than "no".

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Everything that must hold before the process is ready.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    waiting: Arc<Mutex<BTreeMap<String, String>>>,
}

/// One thing that must hold. Closed until [`Gate::open`] is called.
#[derive(Clone, Debug)]
pub struct Gate {
    name: String,
    readiness: Readiness,
}

impl Readiness {
    /// Adds a gate; `name` says what is waited for, such as `ExecAccessRequest list`.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let gate = Gate {
            name: name.into(),
            readiness: self.clone(),
        };
        gate.close(gate.name.clone());
        gate
    }

    /// What is waited for, in alphabetical order; empty when the process is ready.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<String> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.values().cloned().collect()
    }
}

impl Gate {
    /// It holds.
    pub fn open(&self) {
        let waiting = &self.readiness.waiting;
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(&self.name);
    }

    /// It does not hold; `reason` is what the probe shows in place of the gate's name.
    pub fn close(&self, reason: impl Into<String>) {
        let waiting = &self.readiness.waiting;
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(self.name.clone(), reason.into());
    }
}
