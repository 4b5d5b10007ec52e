//! The held requests for grants. A change wakes the requests that it concerns.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics::Metrics;
use crate::write::RunName;

/// The maximum number of held requests; a further one is answered at once. As many connections are open at most.
const HELD: usize = 2_048;

/// A Secret: its namespace and its name.
pub(crate) type SecretName = (String, String);

/// The held requests, by the UIDs of their pods: one of each pod.
pub(crate) struct Polls {
    held: Mutex<HashMap<String, Entry>>,
    most: usize,
    metrics: Metrics,
}

struct Entry {
    namespace: String,
    /// The UID of the run.
    run: String,
    secrets: BTreeSet<String>,
    signal: Arc<Signal>,
}

#[derive(Default)]
struct Signal {
    changed: Notify,
    /// The pod has sent a later request.
    superseded: AtomicBool,
}

/// A held request, until it is dropped.
pub(crate) struct PollGuard<'a> {
    polls: &'a Polls,
    pod: String,
    signal: Arc<Signal>,
}

impl Polls {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            held: Mutex::default(),
            most: HELD,
            metrics,
        }
    }

    /// Registers a request. An earlier request of the same pod is answered at once. Returns `None` if too many are held.
    pub(crate) fn hold(&self, pod: &str, run: &RunName) -> Option<PollGuard<'_>> {
        let mut held = self.held.lock();
        if let Some(earlier) = held.remove(pod) {
            earlier.signal.superseded.store(true, Ordering::Relaxed);
            earlier.signal.changed.notify_one();
        }
        if held.len() >= self.most {
            return None;
        }
        let signal = Arc::new(Signal::default());
        let entry = Entry {
            namespace: run.namespace.clone(),
            run: run.uid.clone(),
            secrets: BTreeSet::new(),
            signal: Arc::clone(&signal),
        };
        held.insert(pod.to_owned(), entry);
        self.metrics.held(held.len());
        Some(PollGuard {
            polls: self,
            pod: pod.to_owned(),
            signal,
        })
    }

    /// Wakes all requests.
    pub(crate) fn wake_all(&self) {
        self.wake(|_| true);
    }

    /// Wakes the requests of a namespace, of which a policy changed.
    pub(crate) fn wake_namespace(&self, namespace: &str) {
        self.wake(|entry| entry.namespace == namespace);
    }

    /// Wakes the requests of a run.
    pub(crate) fn wake_run(&self, uid: &str) {
        self.wake(|entry| entry.run == uid);
    }

    /// Wakes the requests of runs that use a Secret.
    pub(crate) fn wake_secret(&self, (namespace, name): &SecretName) {
        self.wake(|entry| entry.namespace == *namespace && entry.secrets.contains(name));
    }

    fn wake(&self, concerns: impl Fn(&Entry) -> bool) {
        for entry in self.held.lock().values().filter(|entry| concerns(entry)) {
            entry.signal.changed.notify_one();
        }
    }

    /// Returns the Secrets of all held requests.
    pub(crate) fn secrets(&self) -> BTreeSet<SecretName> {
        let held = self.held.lock();
        let all = held.values().flat_map(|entry| {
            let names = entry.secrets.iter();
            names.map(|name| (entry.namespace.clone(), name.clone()))
        });
        all.collect()
    }
}

impl PollGuard<'_> {
    /// Sets the Secrets of which a change wakes the request.
    pub(crate) fn uses(&self, secrets: BTreeSet<String>) {
        let mut held = self.polls.held.lock();
        let entry = held.get_mut(&self.pod);
        if let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.signal, &self.signal)) {
            entry.secrets = secrets;
        }
    }

    /// Waits for a change. A change that occurred since the last call counts.
    pub(crate) async fn changed(&self) {
        self.signal.changed.notified().await;
    }

    /// Checks whether the pod has sent a later request.
    pub(crate) fn is_superseded(&self) -> bool {
        self.signal.superseded.load(Ordering::Relaxed)
    }
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        let mut held = self.polls.held.lock();
        let is_this = |entry: &Entry| Arc::ptr_eq(&entry.signal, &self.signal);
        if held.get(&self.pod).is_some_and(is_this) {
            held.remove(&self.pod);
        }
        self.polls.metrics.held(held.len());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;
    use tokio::time::{Duration, timeout};

    use super::*;

    fn polls() -> Polls {
        Polls::new(Metrics::new(&mut Registry::default()))
    }

    fn run(namespace: &str, uid: &str) -> RunName {
        RunName {
            namespace: namespace.to_owned(),
            name: "hello".to_owned(),
            uid: uid.to_owned(),
        }
    }

    async fn is_woken(held: &PollGuard<'_>) -> bool {
        timeout(Duration::from_secs(1), held.changed())
            .await
            .is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn change_wakes_requests_that_it_concerns_and_no_others() {
        let polls = polls();
        let one = polls.hold("pod-1", &run("team", "run-1")).unwrap();
        let two = polls.hold("pod-2", &run("other", "run-2")).unwrap();
        one.uses(BTreeSet::from(["keys".to_owned()]));
        let key = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        let wakes: [(&dyn Fn(), [bool; 2]); 7] = [
            (&|| polls.wake_all(), [true, true]),
            (&|| polls.wake_namespace("team"), [true, false]),
            (&|| polls.wake_run("run-2"), [false, true]),
            (&|| polls.wake_run("run-3"), [false, false]),
            (&|| polls.wake_secret(&key("team", "keys")), [true, false]),
            (&|| polls.wake_secret(&key("other", "keys")), [false, false]),
            (
                &|| polls.wake_secret(&key("team", "others")),
                [false, false],
            ),
        ];
        for (number, (wake, expected)) in wakes.into_iter().enumerate() {
            wake();
            assert_eq!(
                [is_woken(&one).await, is_woken(&two).await],
                expected,
                "{number}"
            );
        }
        assert_eq!(polls.secrets(), BTreeSet::from([key("team", "keys")]));
        drop((one, two));
        assert!(polls.held.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn later_request_of_pod_ends_the_earlier_one() {
        let polls = polls();
        let first = polls.hold("pod-1", &run("team", "run-1")).unwrap();
        let second = polls.hold("pod-1", &run("team", "run-1")).unwrap();
        assert!(is_woken(&first).await && first.is_superseded());
        assert!(!second.is_superseded());
        drop(first);
        assert_eq!(polls.held.lock().len(), 1);
        drop(second);
        assert!(polls.held.lock().is_empty());
    }

    #[test]
    fn number_of_held_requests_is_bounded() {
        let polls = Polls { most: 2, ..polls() };
        let held: Vec<_> = (0..3)
            .map(|number| polls.hold(&format!("pod-{number}"), &run("team", "run")))
            .collect();
        assert_eq!(held.iter().flatten().count(), 2);
    }
}
