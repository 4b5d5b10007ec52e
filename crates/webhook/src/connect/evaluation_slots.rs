//! Which command policies are evaluated now: one of each namespace at a time, so that an author's slow
//! policy delays its own namespace only, and few of all namespaces. One that timed out is not evaluated
//! again before its backoff is over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Evaluations at once, of all namespaces. One that goes on keeps its slot until it is done.
pub(super) const AT_ONCE: usize = 8;
/// How long a policy that timed out is not evaluated.
pub(super) const BACKOFF: Duration = Duration::from_secs(10);
/// From how many entries on those are removed that are not in use.
const MANY: usize = 512;

/// The evaluations that may run now.
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

/// Held as long as the evaluation runs.
pub(super) struct EvaluationSlot {
    _of_namespace: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl EvaluationSlots {
    /// Waits for a slot; `None` only if there will never be one.
    pub(super) async fn take(&self, namespace: &str) -> Option<EvaluationSlot> {
        // In this order: whoever waits for their own namespace takes no slot from others.
        let of_namespace = self.of(namespace).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(EvaluationSlot {
            _of_namespace: of_namespace,
            _of_all: of_all,
        })
    }

    fn of(&self, namespace: &str) -> Arc<Semaphore> {
        let mut known = self.namespaces.lock();
        if known.len() >= MANY {
            // Whoever waits or is evaluated holds it.
            known.retain(|_, slots| Arc::strong_count(slots) > 1);
        }
        let slots = known.entry(namespace.to_owned());
        Arc::clone(slots.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }

    /// Whether the policy timed out a while ago.
    pub(super) fn in_backoff(&self, namespace: &str, policy: &str, now: Instant) -> bool {
        self.timed_out().in_backoff(namespace, policy, now)
    }

    /// It timed out.
    pub(super) fn back_off(&self, namespace: &str, policy: &str, now: Instant) {
        self.timed_out().add(namespace, policy, now);
    }

    fn timed_out(&self) -> MutexGuard<'_, TimedOut> {
        self.timed_out.lock()
    }
}

/// By namespace and policy, since when. Another namespace's policy of the same words is evaluated: what
/// takes long depends on the command.
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
            slots.of(&format!("team-{number}"));
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
