//! The limits on concurrent evaluations of command policies: one per namespace, so that an author's
//! slow policy delays only its own namespace, and few in total. A policy that timed out is
//! evaluated again only after its backoff.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of concurrent evaluations in all namespaces. An evaluation that exceeds its
/// timeout keeps its slot until it is done.
pub(super) const AT_ONCE: usize = 8;
/// The backoff of a policy that timed out.
pub(super) const BACKOFF: Duration = Duration::from_secs(10);
/// The number of entries from which unused entries are removed.
const MANY: usize = 512;

/// The slots for concurrent evaluations, and the policies in backoff.
pub(super) struct EvaluationSlots {
    all: Arc<Semaphore>,
    namespaces: Mutex<HashMap<String, Arc<Semaphore>>>,
    timed_out: Mutex<TimedOut>,
}

impl Default for EvaluationSlots {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(AT_ONCE)),
            namespaces: Mutex::default(),
            timed_out: Mutex::default(),
        }
    }
}

/// A slot, held as long as the evaluation runs.
pub(super) struct EvaluationSlot {
    _of_namespace: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl EvaluationSlots {
    /// Waits for a slot; returns `None` only if no slot can become available.
    pub(super) async fn take(&self, namespace: &str) -> Option<EvaluationSlot> {
        // In this order: an evaluation that waits for its own namespace takes no slot from other
        // namespaces.
        let of_namespace = self.get_or_create(namespace).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(EvaluationSlot {
            _of_namespace: of_namespace,
            _of_all: of_all,
        })
    }

    fn get_or_create(&self, namespace: &str) -> Arc<Semaphore> {
        let mut known = self.namespaces.lock();
        if known.len() >= MANY {
            // Waiting and running evaluations hold a reference.
            known.retain(|_, slots| Arc::strong_count(slots) > 1);
        }
        let slots = known.entry(namespace.to_owned());
        Arc::clone(slots.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }

    /// Checks whether the policy timed out less than a backoff ago.
    pub(super) fn in_backoff(&self, namespace: &str, policy: &str, now: Instant) -> bool {
        self.timed_out().in_backoff(namespace, policy, now)
    }

    /// Starts the backoff of a policy that timed out.
    pub(super) fn back_off(&self, namespace: &str, policy: &str, now: Instant) {
        self.timed_out().add(namespace, policy, now);
    }

    fn timed_out(&self) -> MutexGuard<'_, TimedOut> {
        self.timed_out.lock()
    }
}

/// The time of the last timeout by namespace and policy. The same policy in another namespace is
/// still evaluated: the duration depends on the command.
#[derive(Default)]
struct TimedOut(HashMap<(String, String), Instant>);

impl TimedOut {
    fn in_backoff(&self, namespace: &str, policy: &str, now: Instant) -> bool {
        let key = (namespace.to_owned(), policy.to_owned());
        let since = self.0.get(&key);
        since.is_some_and(|since| now.duration_since(*since) < BACKOFF)
    }

    fn add(&mut self, namespace: &str, policy: &str, now: Instant) {
        if self.0.len() >= MANY {
            self.0
                .retain(|_, since| now.duration_since(*since) < BACKOFF);
        }
        self.0
            .insert((namespace.to_owned(), policy.to_owned()), now);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_namespace_waits_for_itself_and_for_no_other() {
        let slots = EvaluationSlots::default();
        let shop = slots.take("shop").now_or_never().flatten();
        assert!(shop.is_some());
        assert!(slots.take("shop").now_or_never().is_none());
        assert!(slots.take("bank").now_or_never().flatten().is_some());
        drop(shop);
        assert!(slots.take("shop").now_or_never().flatten().is_some());
    }

    #[test]
    fn few_are_evaluated_at_once() {
        let slots = EvaluationSlots::default();
        let name = |number: usize| format!("team-{number}");
        let taken: Vec<EvaluationSlot> = (0..AT_ONCE)
            .filter_map(|number| slots.take(&name(number)).now_or_never().flatten())
            .collect();
        assert_eq!(taken.len(), AT_ONCE);
        assert!(slots.take("another").now_or_never().is_none());
        drop(taken);
        assert!(slots.take("another").now_or_never().flatten().is_some());
    }

    #[test]
    fn namespaces_that_ask_nothing_are_forgotten_and_those_that_ask_are_not() {
        let slots = EvaluationSlots::default();
        let asked = slots.take("shop").now_or_never().flatten();
        for number in 0..2 * MANY {
            slots.get_or_create(&format!("team-{number}"));
        }
        assert!(slots.namespaces.lock().len() <= MANY);
        assert!(slots.take("shop").now_or_never().is_none());
        drop(asked);
    }

    #[test]
    fn a_policy_that_timed_out_backs_off_in_its_namespace() {
        let slots = EvaluationSlots::default();
        let now = Instant::now();
        assert!(!slots.in_backoff("shop", "slow", now));
        slots.back_off("shop", "slow", now);
        assert!(slots.in_backoff("shop", "slow", now + BACKOFF - Duration::from_nanos(1)));
        assert!(!slots.in_backoff("shop", "slow", now + BACKOFF));
        assert!(!slots.in_backoff("shop", "quick", now));
        assert!(!slots.in_backoff("bank", "slow", now));
    }
}
