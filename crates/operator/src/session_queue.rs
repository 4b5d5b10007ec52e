//! The queue of scripts that end sessions: one at a time in a pod, for any number of its grants,
//! and few at a time on a node. Hundreds of scripts in one pod would block each other, and if one
//! hangs, so would all the others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures::future::BoxFuture;
use oz_core::controller::Failure;
use oz_core::sessions::{self, Sessions, SessionsEnded};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use crate::session_limits::{Limits, ScriptLocation};

/// The maximum number of grants that one script ends, well below the limits of its output and its
/// command line.
pub(crate) const GRANTS_IN_RUN: usize = 192;
/// The maximum number of concurrent reads of pods.
const READS: usize = 32;

/// The result of ending the sessions of one grant; `None` if the pod is gone.
pub(crate) type EndResult = Result<Option<SessionsEnded>, Failure>;

/// The runner of scripts.
pub(crate) trait RunScript: Clone + Send + Sync + 'static {
    /// The pod in the form in which it was read.
    type Pod: Send + 'static;

    /// Reads the pod of these sessions; `None` if it is gone.
    fn find(&self, sessions: Sessions) -> BoxFuture<'static, Result<Option<Self::Pod>, Failure>>;

    /// Returns the name of the node of the pod.
    fn node(pod: &Self::Pod) -> String;

    /// Ends these sessions, which are all in this pod. Returns a result for each, in the same
    /// order.
    fn run(&self, pod: Self::Pod, sessions: Vec<Sessions>) -> BoxFuture<'static, Vec<EndResult>>;
}

/// The scripts of all pods. Cheap to clone; clones share them.
#[derive(Clone)]
pub(crate) struct ScriptQueue<R> {
    script: R,
    /// The runtime that waits for scripts.
    runtime: Handle,
    /// The waiting sessions by pod; a worker exists for each pod in this map.
    pods: Arc<Mutex<HashMap<PodId, VecDeque<Waiting>>>>,
    reads: Arc<Semaphore>,
    limits: Limits,
}

/// Namespace, name and UID of a pod.
type PodId = (String, String, String);

struct Waiting {
    sessions: Sessions,
    done: oneshot::Sender<EndResult>,
}

impl<R: RunScript> ScriptQueue<R> {
    /// Creates the queue. The caller must be in the runtime that waits for scripts.
    pub(crate) fn new(script: R) -> Self {
        Self {
            script,
            runtime: Handle::current(),
            pods: Arc::default(),
            reads: Arc::new(Semaphore::new(READS)),
            limits: Limits::default(),
        }
    }

    /// Ends these sessions with the next script that runs in their pod.
    pub(crate) async fn end(&self, sessions: Sessions) -> EndResult {
        let pod = (
            sessions.namespace.clone(),
            sessions.pod.clone(),
            sessions.pod_uid.clone(),
        );
        let (done, ended) = oneshot::channel();
        let mut begins = false;
        self.pods()
            .entry(pod.clone())
            .or_insert_with(|| {
                begins = true;
                VecDeque::new()
            })
            .push_back(Waiting { sessions, done });
        if begins {
            let this = self.clone();
            self.runtime.spawn(async move { this.work(&pod).await });
        }
        ended.await.unwrap_or_else(|_| Err(broke_off()))
    }

    /// Runs one script after another until no session of the pod waits.
    async fn work(&self, pod: &PodId) {
        while let Some(first) = self.first(pod) {
            match self.enter(first).await {
                Ok(Some((found, permit))) => {
                    self.run(pod, found).await;
                    drop(permit);
                }
                Ok(None) => self.answer_all(pod, &Ok(None)),
                Err(failure) => self.answer_all(pod, &Err(failure)),
            }
        }
    }

    /// Reads the pod and waits until a script may run on its node.
    async fn enter(
        &self,
        sessions: Sessions,
    ) -> Result<Option<(R::Pod, crate::session_limits::Permit)>, Failure> {
        let Some(pod) = self.find(sessions.clone()).await? else {
            return Ok(None);
        };
        let location = ScriptLocation {
            namespace: sessions.namespace.clone(),
            node: R::node(&pod),
        };
        if let Some(permit) = self.limits.try_enter(&location) {
            return Ok(Some((pod, permit)));
        }
        let permit = self.limits.enter(location).await;
        // A pod stays on its node, but it may be gone by now.
        let pod = self.find(sessions).await?;
        Ok(pod.map(|pod| (pod, permit)))
    }

    async fn find(&self, sessions: Sessions) -> Result<Option<R::Pod>, Failure> {
        let _read = self.reads.acquire().await;
        // A separate task, like a run.
        let find = self.runtime.spawn(self.script.find(sessions)).await;
        find.unwrap_or_else(|_| Err(broke_off()))
    }

    /// Runs one script for the sessions that wait now.
    async fn run(&self, pod: &PodId, found: R::Pod) {
        let (sessions, waiting): (Vec<_>, Vec<_>) = self
            .next(pod)
            .into_iter()
            .map(|waiting| (waiting.sessions, waiting.done))
            .unzip();
        if sessions.is_empty() {
            return;
        }
        // A separate task: if it breaks off, others still have their turn.
        let run = self.runtime.spawn(self.script.run(found, sessions)).await;
        let mut answers = run.into_iter().flatten();
        let mut reached = false;
        let mut failed = broke_off();
        for done in waiting {
            let answer = answers.next().unwrap_or_else(|| Err(broke_off()));
            match &answer {
                Ok(_) => reached = true,
                Err(failure) => failed.clone_from(failure),
            }
            let _ = done.send(answer);
        }
        if !reached {
            // Each of the others would get the same result, one after the other.
            self.answer_all(pod, &Err(failed));
        }
    }

    /// Returns the first of the waiting sessions; `None` if none wait, and then the pod has no
    /// worker any more.
    fn first(&self, pod: &PodId) -> Option<Sessions> {
        let mut pods = self.pods();
        let waiting = pods.get_mut(pod)?;
        waiting.retain(|waiting| !waiting.done.is_closed());
        let first = waiting.front().map(|first| first.sessions.clone());
        if first.is_none() {
            pods.remove(pod);
        }
        first
    }

    /// Returns the sessions for the next script.
    fn next(&self, pod: &PodId) -> Vec<Waiting> {
        let mut pods = self.pods();
        let Some(waiting) = pods.get_mut(pod) else {
            return Vec::new();
        };
        waiting.retain(|waiting| !waiting.done.is_closed());
        let count = waiting.len().min(GRANTS_IN_RUN);
        waiting.drain(..count).collect()
    }

    fn answer_all(&self, pod: &PodId, answer: &EndResult) {
        let all = self.pods().get_mut(pod).map(std::mem::take);
        for waiting in all.into_iter().flatten() {
            let _ = waiting.done.send(answer.clone());
        }
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<PodId, VecDeque<Waiting>>> {
        self.pods.lock()
    }
}

fn broke_off() -> Failure {
    Failure::transient(
        sessions::NOT_ENDED,
        "failed to end sessions: the connection to the script was lost",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use futures::future::join_all;
    use jiff::Timestamp;
    use oz_trail::{Action, Decision, Record};

    use super::*;
    use crate::session_limits::{IN_NAMESPACE, ON_NODE};

    /// A fake that counts runs, and returns for each grant the number of grants that ended with it.
    /// The node of each pod is its UID.
    #[derive(Clone, Default)]
    struct Fake {
        running: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
        runs: Arc<AtomicUsize>,
        opens: Arc<tokio::sync::Notify>,
    }

    impl RunScript for Fake {
        type Pod = String;

        fn find(&self, sessions: Sessions) -> BoxFuture<'static, Result<Option<String>, Failure>> {
            async move {
                assert_ne!(sessions.pod, "cannot-be-read", "the read breaks off");
                Ok((sessions.pod != "gone").then_some(sessions.pod_uid))
            }
            .boxed()
        }

        fn node(pod: &String) -> String {
            pod.clone()
        }

        fn run(&self, _: String, sessions: Vec<Sessions>) -> BoxFuture<'static, Vec<EndResult>> {
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
        let (now, action) = (Timestamp::UNIX_EPOCH, Action::SessionTerminated);
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

    /// Waits for this number of concurrent scripts, and gives all others the time to begin too.
    async fn running(fake: &Fake, expected: usize) {
        while fake.running.load(Ordering::SeqCst) < expected {
            tokio::task::yield_now().await;
        }
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fake.running.load(Ordering::SeqCst), expected);
    }

    #[tokio::test]
    async fn grants_in_one_pod_share_one_script_at_a_time() {
        let fake = Fake::default();
        let queue = ScriptQueue::new(fake.clone());
        let all = (0..600).map(|number| queue.end(sessions("shop", "web-0", number)));
        let ended = join_all(all).await;
        assert!(ended.iter().all(|ended| matches!(ended, Ok(Some(_)))));
        assert_eq!(fake.most.load(Ordering::SeqCst), 1);
        let runs = fake.runs.load(Ordering::SeqCst);
        assert_eq!(runs, 600_usize.div_ceil(GRANTS_IN_RUN));
        assert!(queue.pods().is_empty());
    }

    #[tokio::test]
    async fn a_pod_that_does_not_answer_keeps_no_other_waiting_and_is_not_asked_for_each_grant() {
        let fake = Fake::default();
        let queue = ScriptQueue::new(fake.clone());
        let all = (0..600).map(|number| queue.end(sessions("shop", "hangs", number)));
        let mut hang = Box::pin(join_all(all));
        assert!((&mut hang).now_or_never().is_none());
        for namespace in ["shop", "bank"] {
            assert!(queue.end(sessions(namespace, "web-0", 1)).await.is_ok());
        }
        running(&fake, 1).await;
        fake.opens.notify_waiters();
        let ended = hang.await;
        assert_eq!(ended.len(), 600);
        let hangs = |ended: &EndResult| matches!(ended, Err(failure) if failure.reason == "Hangs");
        assert!(ended.iter().all(hangs));
        assert_eq!(fake.runs.load(Ordering::SeqCst) - 2, 1);
    }

    #[tokio::test]
    async fn many_pods_that_do_not_answer_leave_other_namespaces_and_nodes_alone() {
        let fake = Fake::default();
        let queue = ScriptQueue::new(fake.clone());
        let hanging = |namespace: String, node: String, number: usize| {
            let mut one = sessions(&namespace, "hangs", number);
            one.pod = "hangs".into();
            one.pod_uid = node;
            queue.end(one)
        };
        // One namespace with pods on all nodes.
        let wide = (0..4 * IN_NAMESPACE).map(|n| hanging("shop".into(), format!("node-{n}"), n));
        let mut wide = Box::pin(join_all(wide));
        assert!((&mut wide).now_or_never().is_none());
        running(&fake, IN_NAMESPACE).await;
        assert!(queue.end(sessions("bank", "web-0", 1)).await.is_ok());
        // One node with pods of all namespaces: two pods with one name in different namespaces are
        // two pods.
        let deep = (0..4 * ON_NODE).map(|n| hanging(format!("team-{n}"), "lost".into(), n));
        let mut deep = Box::pin(join_all(deep));
        assert!((&mut deep).now_or_never().is_none());
        running(&fake, IN_NAMESPACE + ON_NODE).await;
        assert!(queue.end(sessions("team-100", "web-0", 1)).await.is_ok());
    }

    #[tokio::test]
    async fn a_script_that_breaks_off_is_a_failure_and_the_next_one_has_its_turn() {
        let queue = ScriptQueue::new(Fake::default());
        for pod in ["breaks", "cannot-be-read", "breaks", "cannot-be-read"] {
            let ended = queue.end(sessions("shop", pod, 1)).await;
            assert_eq!(ended.unwrap_err().reason, sessions::NOT_ENDED);
        }
        assert_eq!(queue.end(sessions("shop", "gone", 1)).await, Ok(None));
        assert!(queue.pods().is_empty());
    }
}
