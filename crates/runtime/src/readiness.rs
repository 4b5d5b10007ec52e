//! The conditions that this process waits for, by name, so that a probe shows the reason.

use parking_lot::Mutex;
use std::sync::Arc;

/// The conditions that must hold before the process is ready, and the notices that it shows once it
/// is ready.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    gates: Arc<Mutex<Vec<Gate>>>,
    notices: Arc<Mutex<Vec<Notice>>>,
}

/// A notice of a process that is ready but degraded. It is empty until [`Notice::set`] is called;
/// clones are the same notice.
#[derive(Clone, Debug, Default)]
pub struct Notice(Arc<Mutex<Option<String>>>);

/// A condition that must hold. The gate is closed until [`Gate::open`] is called; clones are the
/// same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    /// The text that a probe shows while the gate is closed.
    waits_for: Arc<Mutex<Option<String>>>,
}

impl Readiness {
    /// Adds a new gate; `name` is the name of the condition, such as `ExecAccessRequest list`.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let gate = Gate::new(name);
        self.add(gate.clone());
        gate
    }

    /// Adds a gate.
    pub fn add(&self, gate: Gate) {
        let mut gates = self.gates.lock();
        gates.push(gate);
    }

    /// Adds an empty notice.
    #[must_use]
    pub fn notice(&self) -> Notice {
        let notice = Notice::default();
        let mut notices = self.notices.lock();
        notices.push(notice.clone());
        notice
    }

    /// Returns the notices of a degraded process, which may be ready.
    #[must_use]
    pub fn degraded(&self) -> Vec<String> {
        let notices = self.notices.lock();
        notices.iter().filter_map(Notice::text).collect()
    }

    /// Returns the conditions that the process waits for, in the order in which the gates were
    /// added; empty when the process is ready.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<String> {
        let gates = self.gates.lock();
        gates.iter().filter_map(Gate::waits_for).collect()
    }
}

impl Notice {
    /// Sets the text of the notice, or removes it with `None`.
    pub fn set(&self, text: Option<String>) {
        *self.0.lock() = text;
    }

    fn text(&self) -> Option<String> {
        let text = self.0.lock();
        text.clone()
    }
}

impl Gate {
    /// Creates a closed gate; a probe shows `name` while the gate is closed.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            waits_for: Arc::new(Mutex::new(Some(name.into()))),
        }
    }

    /// Records that the condition holds.
    pub fn open(&self) {
        self.set(None);
    }

    /// Records that the condition does not hold; a probe shows `reason` instead of the gate's name.
    pub fn close(&self, reason: impl Into<String>) {
        self.set(Some(reason.into()));
    }

    fn set(&self, waits_for: Option<String>) {
        *self.waits_for.lock() = waits_for;
    }

    fn waits_for(&self) -> Option<String> {
        let waits_for = self.waits_for.lock();
        waits_for.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_ready_when_all_gates_are_open() {
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

    #[test]
    fn a_notice_is_said_as_long_as_it_holds() {
        let readiness = Readiness::default();
        let (first, second) = (readiness.notice(), readiness.notice());
        second.set(Some("the registration fails".to_owned()));
        assert_eq!(readiness.degraded(), ["the registration fails"]);
        first.set(None);
        second.clone().set(None);
        assert!(readiness.degraded().is_empty());
    }
}
