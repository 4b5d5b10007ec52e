//! What this process still waits for, by name, so that a probe says more than "no".

use std::sync::{Arc, Mutex, PoisonError};

/// Everything that must hold before the process is ready.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<Vec<Gate>>>);

/// One thing that must hold. Closed until [`Gate::open`] is called; clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    /// What a probe shows while it is closed.
    waits_for: Arc<Mutex<Option<String>>>,
}

impl Readiness {
    /// Adds a new gate; `name` says what is waited for, such as `ExecAccessRequest list`.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let gate = Gate::new(name);
        self.add(gate.clone());
        gate
    }

    /// Adds a gate.
    pub fn add(&self, gate: Gate) {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.push(gate);
    }

    /// What is waited for, in the order in which the gates were added; empty when the process is
    /// ready.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<String> {
        let gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.iter().filter_map(Gate::waits_for).collect()
    }
}

impl Gate {
    /// A closed gate; `name` is what a probe shows while it is closed.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            waits_for: Arc::new(Mutex::new(Some(name.into()))),
        }
    }

    /// It holds.
    pub fn open(&self) {
        self.set(None);
    }

    /// It does not hold; `reason` is what a probe shows in place of the gate's name.
    pub fn close(&self, reason: impl Into<String>) {
        self.set(Some(reason.into()));
    }

    fn set(&self, waits_for: Option<String>) {
        *self
            .waits_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = waits_for;
    }

    fn waits_for(&self) -> Option<String> {
        let waits_for = self.waits_for.lock();
        waits_for.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_once_every_gate_is_open_whatever_their_names() {
        let readiness = Readiness::default();
        let first = readiness.gate("Pod list");
        let second = readiness.gate("Pod list");
        assert_eq!(readiness.waiting_for(), ["Pod list", "Pod list"]);
        first.open();
        second.close("CRD pods.example");
        assert_eq!(readiness.waiting_for(), ["CRD pods.example"]);
        second.open();
        assert!(readiness.waiting_for().is_empty());
    }
}
