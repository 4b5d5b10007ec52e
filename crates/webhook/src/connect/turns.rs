//! Whose policy is asked, and whose is not: one of each namespace at a time, so that an author's slow
//! policy keeps nobody waiting but its own namespace, and few altogether. One that took too long
//! rests for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Evaluations at once, of all namespaces. One that goes on keeps its place until it is done.
pub(super) const AT_ONCE: usize = 8;
/// How long a policy is not asked that gave no answer in time.
pub(super) const REST: Duration = Duration::from_secs(10);
/// From how many on those are forgotten that may be.
const MANY: usize = 512;

/// Who may be asked now.
pub(super) struct Turns {
    places: Arc<Semaphore>,
    namespaces: Mutex<HashMap<String, Arc<Semaphore>>>,
    resting: Mutex<Resting>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            namespaces: Mutex::default(),
            resting: Mutex::default(),
        }
    }
}

/// Lasts as long as the evaluation.
pub(super) struct Turn {
    _of_namespace: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Turns {
    /// Waits for a turn; `None` only if there will never be one.
    pub(super) async fn take(&self, namespace: &str) -> Option<Turn> {
        // In this order: who waits for their own namespace takes no place from others.
        let of_namespace = self.of(namespace).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.places).acquire_owned().await.ok()?;
        Some(Turn {
            _of_namespace: of_namespace,
            _of_all: of_all,
        })
    }

    fn of(&self, namespace: &str) -> Arc<Semaphore> {
        let mut known = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MANY {
            // Whoever waits or is being asked holds it.
            known.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        let turns = known.entry(namespace.to_owned());
        Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }

    /// Whether the policy gave no answer a while ago.
    pub(super) fn rests(&self, namespace: &str, policy: &str, now: Instant) -> bool {
        self.resting().is_known(namespace, policy, now)
    }

    /// It gave no answer in time.
    pub(super) fn rest(&self, namespace: &str, policy: &str, now: Instant) {
        self.resting().add(namespace, policy, now);
    }

    fn resting(&self) -> std::sync::MutexGuard<'_, Resting> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By namespace and policy, since when. Another namespace's policy of the same words is asked: what
/// takes long depends on the command.
#[derive(Default)]
struct Resting(HashMap<(String, String), Instant>);

impl Resting {
    fn is_known(&self, namespace: &str, policy: &str, now: Instant) -> bool {
        let key = (namespace.to_owned(), policy.to_owned());
        let since = self.0.get(&key);
        since.is_some_and(|since| now.duration_since(*since) < REST)
    }

    fn add(&mut self, namespace: &str, policy: &str, now: Instant) {
        if self.0.len() >= MANY {
            self.0.retain(|_, since| now.duration_since(*since) < REST);
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
        let turns = Turns::default();
        let shop = turns.take("shop").now_or_never().flatten();
        assert!(shop.is_some());
        assert!(turns.take("shop").now_or_never().is_none());
        assert!(turns.take("bank").now_or_never().flatten().is_some());
        drop(shop);
        assert!(turns.take("shop").now_or_never().flatten().is_some());
    }

    #[test]
    fn few_are_asked_at_once() {
        let turns = Turns::default();
        let name = |number: usize| format!("team-{number}");
        let taken: Vec<Turn> = (0..AT_ONCE)
            .filter_map(|number| turns.take(&name(number)).now_or_never().flatten())
            .collect();
        assert_eq!(taken.len(), AT_ONCE);
        assert!(turns.take("another").now_or_never().is_none());
        drop(taken);
        assert!(turns.take("another").now_or_never().flatten().is_some());
    }

    #[test]
    fn namespaces_that_ask_nothing_are_forgotten_and_those_that_ask_are_not() {
        let turns = Turns::default();
        let asked = turns.take("shop").now_or_never().flatten();
        for number in 0..2 * MANY {
            turns.of(&format!("team-{number}"));
        }
        assert!(turns.namespaces.lock().unwrap().len() <= MANY);
        assert!(turns.take("shop").now_or_never().is_none());
        drop(asked);
    }

    #[test]
    fn a_policy_that_took_too_long_rests_for_a_while_in_its_namespace() {
        let turns = Turns::default();
        let now = Instant::now();
        assert!(!turns.rests("shop", "slow", now));
        turns.rest("shop", "slow", now);
        assert!(turns.rests("shop", "slow", now + REST - Duration::from_nanos(1)));
        assert!(!turns.rests("shop", "slow", now + REST));
        assert!(!turns.rests("shop", "quick", now));
        assert!(!turns.rests("bank", "slow", now));
    }
}
