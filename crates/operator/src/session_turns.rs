//! When scripts are run that end sessions: few at a time in a pod and in a namespace, each for several
//! grants. Hundreds of scripts in one pod would stand in each other's way, and where one hangs, so
//! would all the others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use oz_core::controller::{Failure, Sessions, SessionsEnded};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How many scripts run at once in one pod.
const RUNS_IN_POD: usize = 2;
/// How many scripts run at once in the pods of one namespace: where pods do not answer, the grants in
/// other namespaces do not wait for them.
const RUNS_IN_NAMESPACE: usize = 16;
/// How many scripts run at once altogether. Each takes a connection.
const RUNS: usize = 256;
/// How many grants one script ends.
const GRANTS_IN_RUN: usize = 8;

/// What came of ending the sessions of one grant; none if the pod is gone.
pub(crate) type Came = Result<Option<SessionsEnded>, Failure>;

/// Runs one script.
pub(crate) trait RunScript: Clone + Send + Sync + 'static {
    /// Ends these sessions, which are all in one pod. An answer for each, in the same order.
    fn run(&self, sessions: Vec<Sessions>) -> BoxFuture<'static, Vec<Came>>;
}

/// The turns of all pods. Cheap to clone; clones share them.
#[derive(Clone)]
pub(crate) struct Turns<R> {
    script: R,
    /// Where scripts are waited for.
    runtime: Handle,
    pods: Arc<Mutex<HashMap<Place, Pod>>>,
    namespaces: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
    all: Arc<Semaphore>,
}

/// Namespace, name and UID of a pod.
type Place = (String, String, String);

#[derive(Default)]
struct Pod {
    waiting: VecDeque<Waiting>,
    runs: usize,
}

struct Waiting {
    sessions: Sessions,
    done: oneshot::Sender<Came>,
}

impl<R: RunScript> Turns<R> {
    /// To be called in the runtime that is to wait for scripts.
    pub(crate) fn new(script: R) -> Self {
        Self {
            script,
            runtime: Handle::current(),
            pods: Arc::default(),
            namespaces: Arc::default(),
            all: Arc::new(Semaphore::new(RUNS)),
        }
    }

    /// Ends these sessions when it is their turn.
    pub(crate) async fn end(&self, sessions: Sessions) -> Came {
        let place = (
            sessions.namespace.clone(),
            sessions.pod.clone(),
            sessions.pod_uid.clone(),
        );
        let (done, came) = oneshot::channel();
        if self.queue(&place, Waiting { sessions, done }) {
            let this = self.clone();
            self.runtime.spawn(async move { this.work(&place).await });
        }
        came.await.unwrap_or_else(|_| Err(broke_off()))
    }

    /// Whether one more has to work for the pod now.
    fn queue(&self, place: &Place, waiting: Waiting) -> bool {
        let mut pods = self.pods();
        let pod = pods.entry(place.clone()).or_default();
        pod.waiting.push_back(waiting);
        let begins = pod.runs < RUNS_IN_POD;
        pod.runs += usize::from(begins);
        begins
    }

    /// Runs one script after the other until nobody waits for the pod any more.
    async fn work(&self, place: &Place) {
        loop {
            let _permits = self.permits(&place.0).await;
            let Some(batch) = self.next(place) else {
                break;
            };
            let (sessions, waiting): (Vec<_>, Vec<_>) = batch
                .into_iter()
                .map(|waiting| (waiting.sessions, waiting.done))
                .unzip();
            // A task of its own: if it breaks off, others still have their turn.
            let run = self.runtime.spawn(self.script.run(sessions)).await;
            let mut answers = run.unwrap_or_default().into_iter();
            let mut reached = false;
            let mut failed = broke_off();
            for done in waiting {
                let came = answers.next().unwrap_or_else(|| Err(broke_off()));
                match &came {
                    Ok(_) => reached = true,
                    Err(failure) => failed.clone_from(failure),
                }
                let _ = done.send(came);
            }
            if !reached {
                // Each of the others would find the same, one after the other.
                for waiting in self.all_of(place) {
                    let _ = waiting.done.send(Err(failed.clone()));
                }
            }
        }
        self.forget_idle(&place.0);
    }

    /// Those whose turn it is; `None` if none waits, and then nobody works for them any more.
    fn next(&self, place: &Place) -> Option<Vec<Waiting>> {
        let mut pods = self.pods();
        let pod = pods.get_mut(place)?;
        pod.waiting.retain(|waiting| !waiting.done.is_closed());
        if pod.waiting.is_empty() {
            pod.runs = pod.runs.saturating_sub(1);
            if pod.runs == 0 {
                pods.remove(place);
            }
            return None;
        }
        let share = pod.waiting.len().div_ceil(RUNS_IN_POD);
        Some(pod.waiting.drain(..share.min(GRANTS_IN_RUN)).collect())
    }

    fn all_of(&self, place: &Place) -> VecDeque<Waiting> {
        let mut pods = self.pods();
        let pod = pods.get_mut(place);
        pod.map(|pod| std::mem::take(&mut pod.waiting))
            .unwrap_or_default()
    }

    async fn permits(&self, namespace: &str) -> [Option<OwnedSemaphorePermit>; 2] {
        let of_namespace = {
            let mut namespaces = self.namespaces();
            let known = namespaces.entry(namespace.to_owned());
            Arc::clone(known.or_insert_with(|| Arc::new(Semaphore::new(RUNS_IN_NAMESPACE))))
        };
        // Its own first: who waits for those holds nothing that others want.
        let of_namespace = of_namespace.acquire_owned().await.ok();
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok();
        [of_namespace, of_all]
    }

    fn forget_idle(&self, namespace: &str) {
        let mut namespaces = self.namespaces();
        let idle = |known: &Arc<Semaphore>| {
            Arc::strong_count(known) == 1 && known.available_permits() == RUNS_IN_NAMESPACE
        };
        if namespaces.get(namespace).is_some_and(idle) {
            namespaces.remove(namespace);
        }
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<Place, Pod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn namespaces(&self) -> MutexGuard<'_, HashMap<String, Arc<Semaphore>>> {
        self.namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn broke_off() -> Failure {
    Failure::transient(
        Failure::SESSIONS_NOT_ENDED,
        "failed to end sessions: the script's run broke off",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use futures::future::join_all;
    use jiff::Timestamp;
    use oz_core::audit::{Action, Decision, Record};

    use super::*;

    /// Counts runs, and answers for each grant with how many were ended together with it.
    #[derive(Clone, Default)]
    struct Fake {
        running: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
        runs: Arc<AtomicUsize>,
        opens: Arc<tokio::sync::Notify>,
    }

    impl RunScript for Fake {
        fn run(&self, sessions: Vec<Sessions>) -> BoxFuture<'static, Vec<Came>> {
            let this = self.clone();
            async move {
                let running = this.running.fetch_add(1, Ordering::SeqCst) + 1;
                this.most.fetch_max(running, Ordering::SeqCst);
                this.runs.fetch_add(1, Ordering::SeqCst);
                assert_ne!(sessions[0].pod, "breaks", "the script breaks off");
                match sessions[0].pod.as_str() {
                    "hangs" => this.opens.notified().await,
                    _ => tokio::task::yield_now().await,
                }
                this.running.fetch_sub(1, Ordering::SeqCst);
                let together = u32::try_from(sessions.len()).unwrap();
                let came = |sessions: &Sessions| match sessions.pod.as_str() {
                    "hangs" => Err(Failure::transient("Hangs", "no answer")),
                    _ => Ok(Some(SessionsEnded {
                        ended: together,
                        ..SessionsEnded::default()
                    })),
                };
                sessions.iter().map(came).collect()
            }
            .boxed()
        }
    }

    fn sessions(namespace: &str, pod: &str, number: usize) -> Sessions {
        let (now, action) = (Timestamp::UNIX_EPOCH, Action::SessionCut);
        Sessions {
            namespace: namespace.into(),
            pod: pod.into(),
            pod_uid: "uid".into(),
            mark: number.to_string(),
            granted_at: now,
            with_pod: false,
            record: Record::about(now, action, Decision::End, "id", "Expired", "ended"),
        }
    }

    #[tokio::test]
    async fn grants_in_one_pod_share_few_scripts() {
        let fake = Fake::default();
        let turns = Turns::new(fake.clone());
        let all = (0..100).map(|number| turns.end(sessions("shop", "web-0", number)));
        let came = join_all(all).await;
        assert!(came.iter().all(|came| matches!(came, Ok(Some(_)))));
        assert!(fake.most.load(Ordering::SeqCst) <= RUNS_IN_POD);
        assert!(fake.runs.load(Ordering::SeqCst) < 20);
        assert!(turns.pods().is_empty() && turns.namespaces().is_empty());
    }

    #[tokio::test]
    async fn a_pod_that_does_not_answer_keeps_no_other_waiting_and_is_not_asked_for_each_grant() {
        let fake = Fake::default();
        let turns = Turns::new(fake.clone());
        let mut hang = Box::pin(join_all(
            (0..200).map(|number| turns.end(sessions("shop", "hangs", number))),
        ));
        assert!((&mut hang).now_or_never().is_none());
        for namespace in ["shop", "bank"] {
            assert!(turns.end(sessions(namespace, "web-0", 1)).await.is_ok());
        }
        let tried = fake.running.load(Ordering::SeqCst);
        assert!(tried <= RUNS_IN_POD, "{tried} at once in a pod that hangs");
        let failed = async {
            loop {
                fake.opens.notify_waiters();
                tokio::task::yield_now().await;
            }
        };
        let came = tokio::select! { came = hang => came, () = failed => Vec::new() };
        assert_eq!(came.len(), 200);
        assert!(
            came.iter()
                .all(|came| matches!(came, Err(failure) if failure.reason == "Hangs"))
        );
        let runs = fake.runs.load(Ordering::SeqCst) - 2;
        assert!(
            runs <= 2 * RUNS_IN_POD,
            "{runs} scripts for a pod that hangs"
        );
    }

    #[tokio::test]
    async fn many_pods_that_do_not_answer_leave_other_namespaces_alone() {
        let fake = Fake::default();
        let turns = Turns::new(fake.clone());
        let all = (0..4 * RUNS_IN_NAMESPACE).map(|number| {
            let mut one = sessions("shop", "hangs", number);
            one.pod_uid = number.to_string();
            turns.end(one)
        });
        let mut hang = Box::pin(join_all(all));
        assert!((&mut hang).now_or_never().is_none());
        assert!(turns.end(sessions("bank", "web-0", 1)).await.is_ok());
        assert_eq!(fake.running.load(Ordering::SeqCst), RUNS_IN_NAMESPACE);
    }

    #[tokio::test]
    async fn a_script_that_breaks_off_is_a_failure_and_the_next_one_has_its_turn() {
        let turns = Turns::new(Fake::default());
        for _ in 0..2 * RUNS_IN_POD {
            let came = turns.end(sessions("shop", "breaks", 1)).await;
            assert_eq!(came.unwrap_err().reason, Failure::SESSIONS_NOT_ENDED);
        }
    }
}
