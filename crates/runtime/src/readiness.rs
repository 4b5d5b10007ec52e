//! What this process still waits for, by name, so that a probe says more than "no".

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Everything that must hold before the process is ready.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    gates: usize,
    /// What each closed gate shows, by its number.
    reasons: BTreeMap<usize, String>,
}

/// One thing that must hold. Closed until [`Gate::open`] is called.
#[derive(Clone, Debug)]
pub struct Gate {
    number: usize,
    readiness: Readiness,
}

impl Readiness {
    /// Adds a gate; `name` says what is waited for, such as `ExecAccessRequest list`.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let mut waiting = self.waiting();
        waiting.gates += 1;
        let number = waiting.gates;
        waiting.reasons.insert(number, name.into());
        Gate {
            number,
            readiness: self.clone(),
        }
    }

    /// What is waited for, in the order in which the gates were added; empty when the process is
    /// ready.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<String> {
        self.waiting().reasons.values().cloned().collect()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// It holds.
    pub fn open(&self) {
        self.readiness.waiting().reasons.remove(&self.number);
    }

    /// It does not hold; `reason` is what the probe shows in place of the gate's name.
    pub fn close(&self, reason: impl Into<String>) {
        let mut waiting = self.readiness.waiting();
        waiting.reasons.insert(self.number, reason.into());
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
