//! The loop of one controller: takes keys from the queue, runs passes concurrently, and sleeps
//! until an object changes or is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::Resource;
use oz_audit::Sink;
use oz_core::controller::{Controller, Failure, FailureClass};
use oz_core::lifecycle::window::has_come;
use oz_runtime::{Closed, Store, Subscription};
use tokio::runtime::Handle;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::backoff::pause;
use super::children::{Children, Departed};
use super::pass::Passed;
use super::queue::{Lane, Next, Turn, Wake};
use super::shared::{Found, Shared};
use super::write::Writer;
use crate::events::Events;
use crate::metrics::Counts;
use crate::observe::{Cx, Observe, Ready};
use crate::ports::Ports;

/// The longest sleep before an awaited instant: a clock that is set is noticed within this.
pub(crate) const SLICE: Duration = Duration::from_secs(1);
/// The sleep without an awaited instant. Every change ends it.
const IDLE: Duration = Duration::from_secs(3_600);
/// The maximum wait for lists; after it, existing grants are reconciled without them.
const LISTS_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time in which passes may finish once the controller stops.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);

/// The runner of one controller.
pub(crate) struct Runner<C: Controller, O> {
    pub(crate) controller: Arc<C>,
    pub(crate) observe: O,
    pub(crate) kind: <C::Object as Resource>::DynamicType,
    pub(crate) cx: Cx,
    pub(crate) objects: Store<C::Object>,
    pub(crate) subscription: Subscription,
    pub(crate) children: Children,
    pub(crate) departed: Departed<C::Object>,
    pub(crate) awaited: Vec<Box<dyn Ready>>,
    /// True if all lists are complete, so that all decisions may be made.
    pub(crate) complete: AtomicBool,
    /// True if the wait for lists has timed out: existing grants are reconciled without them.
    pub(crate) waited: AtomicBool,
    pub(crate) writer: Writer,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) ports: Ports,
    pub(crate) events: Events,
    pub(crate) counts: Arc<Counts>,
    pub(crate) shared: Arc<Shared>,
    /// The runtime of ordinary passes: their computations take no thread from due passes.
    pub(crate) ordinary: Handle,
}

/// A running pass.
struct UnderWay {
    turn: Turn,
    began: Instant,
}

impl<C, O> Runner<C, O>
where
    C: Controller,
    O: Observe<C>,
{
    /// Waits for the first lists, up to a limit, and for leadership, then reconciles until `stop`, and
    /// lets the running passes finish. Expired grants do not wait for lists of other kinds.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let deadline = tokio::time::Instant::now() + LISTS_TIMEOUT;
        let started = async {
            let _ = timeout_at(deadline, self.own_lists()).await;
            self.writer.tenure.begun().await;
        };
        if stop.run_until_cancelled(started).await.is_none() {
            return;
        }
        let mut own = self.own_are_listed();
        if own && self.lists().now_or_never().is_some() {
            self.start();
        } else if own {
            self.start_what_ends();
        }
        let mut passes = JoinSet::new();
        let mut under_way = std::collections::HashMap::new();
        while !stop.is_cancelled() {
            self.begin(&mut passes, &mut under_way);
            let complete = self.complete.load(Ordering::Acquire);
            let waits = !complete && !self.waited.load(Ordering::Acquire);
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.lists(), if !complete => {
                    own = true;
                    self.start();
                }
                () = sleep_until(deadline), if waits => {
                    tracing::warn!(
                        controller = self.controller.name(),
                        "lists are missing: grants expire in time, and no access is granted"
                    );
                    self.waited.store(true, Ordering::Release);
                    self.start();
                }
                () = self.own_lists(), if !own => {
                    own = true;
                    self.start();
                }
                Some(ended) = passes.join_next_with_id() => self.end(ended, &mut under_way),
                () = self.shared.changed.notified() => {}
                () = tokio::time::sleep(self.until_due()) => {}
            }
        }
        let drained = async { while passes.join_next().await.is_some() {} };
        if timeout(DRAIN, drained).await.is_err() {
            tracing::warn!(
                controller = self.controller.name(),
                "some passes did not finish in time"
            );
            // No work of this controller continues once it has stopped.
            passes.shutdown().await;
        }
    }

    /// Waits for the lists of the objects and of their children.
    async fn own_lists(&self) {
        self.objects.ready().await;
        for child in &self.children.kinds {
            child.store.ready().await;
        }
    }

    /// Checks whether those lists are complete: otherwise an object that is missing may exist.
    pub(super) fn own_are_listed(&self) -> bool {
        let mut children = self.children.kinds.iter();
        self.objects.is_ready() && children.all(|child| child.store.is_ready())
    }

    /// Waits for all lists, those of other kinds included.
    async fn lists(&self) {
        self.own_lists().await;
        for store in &self.awaited {
            store.ready().await;
        }
        self.complete.store(true, Ordering::Release);
    }

    /// Queues the objects with grants that have expired, or will expire before the wait for lists
    /// of other kinds times out.
    fn start_what_ends(&self) {
        let now = self.cx.now();
        let given_up = now.saturating_add(LISTS_TIMEOUT).unwrap_or(now);
        self.shared.begin_with(|| {
            let owners = self.children.owners();
            let mut opening = Vec::new();
            self.objects.for_each(|object| {
                if owners.contains(object.uid()) && has_come(given_up, self.lasts(&object, now)) {
                    opening.push(object.uid().to_owned());
                }
            });
            Found {
                opening,
                others: Vec::new(),
            }
        });
    }

    /// Returns the expiry of the grant of an object, as far as the object's status contains it: `now`
    /// if it does not.
    fn lasts(&self, object: &Closed<'_, C::Object>, now: Timestamp) -> Timestamp {
        let asked = || self.controller.lasts_until(Some(&*object.open()?), &[]);
        object.until().or_else(asked).unwrap_or(now)
    }

    /// Queues all objects once. The objects with children come first, and of those the ones with the earliest
    /// expiry: they may have expired. Then come children of objects that may be deleted, and only then the rest,
    /// which might request more.
    fn start(&self) {
        let now = self.cx.now();
        self.shared.start(|| {
            let mut owners = self.children.owners();
            let with_children = owners.len();
            let (mut opening, mut others) = (Vec::new(), Vec::new());
            self.objects.for_each(|object| {
                let uid = object.uid().to_owned();
                if owners.remove(&uid) {
                    opening.push((self.lasts(&object, now), uid));
                } else if let Some(object) = object.open() {
                    let created = object.meta().creation_timestamp.clone();
                    others.push((created, uid, self.controller.flow(&object)));
                }
            });
            opening.sort();
            others.sort();
            tracing::info!(
                controller = self.controller.name(),
                objects = others.len(),
                with_children,
                "started"
            );
            if !self.children.belonging.is_ours_alone() {
                owners.clear();
            }
            // Children without a known object may be forged, and must not delay the others.
            let forged = owners.into_iter().map(|owner| (owner, String::new()));
            let others = others.into_iter().map(|(_, uid, flow)| (uid, flow));
            Found {
                opening: opening.into_iter().map(|(_, owner)| owner).collect(),
                others: forged.chain(others).collect(),
            }
        });
    }

    /// Starts the passes that may run now.
    fn begin(
        self: &Arc<Self>,
        passes: &mut JoinSet<Passed>,
        under_way: &mut std::collections::HashMap<Id, UnderWay>,
    ) {
        let mut queue = self.shared.queue();
        let now = self.cx.now();
        queue.promote(now, Instant::now());
        while let Some(turn) = queue.pop() {
            if let Some(due) = turn.due {
                let lag = now.duration_since(due);
                self.counts
                    .woke(lag.max(SignedDuration::ZERO).unsigned_abs());
            }
            let runner = Arc::clone(self);
            let key = turn.key.clone();
            let span = tracing::debug_span!("pass", controller = self.controller.name(), uid = key);
            let pass = async move { runner.pass(&key).await }.instrument(span);
            let task = match turn.lane {
                Lane::Urgent => passes.spawn(pass),
                Lane::Ordinary => passes.spawn_on(pass, &self.ordinary),
            };
            let began = Instant::now();
            under_way.insert(task.id(), UnderWay { turn, began });
        }
        self.counts.queued(queue.depth());
    }

    /// Reports the result of a pass to the queue. A pass that panicked counts as a failed one.
    fn end(
        &self,
        ended: Result<(Id, Passed), JoinError>,
        under_way: &mut std::collections::HashMap<Id, UnderWay>,
    ) {
        let (id, passed) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(controller = self.controller.name(), %error, "a pass broke off");
                let failure = Failure::transient(
                    "Panic",
                    "internal error: reconcile panicked (please report)",
                );
                let passed = Passed {
                    failure: Some(failure),
                    ..Passed::default()
                };
                (error.id(), passed)
            }
        };
        let Some(UnderWay { turn, began }) = under_way.remove(&id) else {
            return;
        };
        let failure = passed.failure.as_ref();
        self.counts.passed(began.elapsed(), failure);
        let mut queue = self.shared.queue();
        let failures = queue.failures(&turn.key);
        if let Some(failure) = failure {
            // Logged once at a visible level; the status and the metrics show the rest.
            let (controller, uid) = (self.controller.name(), &turn.key);
            let (class, reason) = (&failure.class, failure.reason);
            if failures == 0 {
                tracing::warn!(controller, uid, %class, reason, "{failure}");
                self.tell(uid, failure);
            } else {
                tracing::debug!(controller, uid, %class, reason, failures, "{failure}");
            }
        }
        let next = next(&passed, failures, turn.lane);
        queue.done(&turn.key, next, Instant::now());
    }

    /// Publishes an event on an object about a failed pass, if its controller returns one.
    fn tell(&self, uid: &str, failure: &Failure) {
        let Some(object) = self.objects.by_uid(uid) else {
            return;
        };
        if let Some(event) = self.controller.failed(&object, failure) {
            self.events.publish(object.object_ref(&self.kind), event);
        }
    }

    /// Reconciles an object again right after the running pass.
    pub(crate) fn push_again(&self, uid: &str) {
        self.shared.push(uid, Lane::Urgent);
    }

    /// Returns the maximum duration of the next sleep.
    fn until_due(&self) -> Duration {
        let queue = self.shared.queue();
        let wake = queue.next_wake().map(|at| {
            let left = at.duration_since(self.cx.now());
            // A negative duration means due.
            left.max(SignedDuration::ZERO).unsigned_abs().min(SLICE)
        });
        let retry = queue
            .next_retry()
            .map(|at| at.saturating_duration_since(Instant::now()));
        wake.into_iter().chain(retry).min().unwrap_or(IDLE)
    }
}

/// Returns the time of the pass after one with this result.
fn next(passed: &Passed, failures: u32, lane: Lane) -> Next {
    let class = passed.failure.as_ref().map(|failure| failure.class);
    let retry = class.and_then(|class| pause(class, failures, lane));
    let Some(planned) = &passed.planned else {
        return Next {
            wake: Wake::AsBefore,
            retry,
            failed: class.is_some(),
        };
    };
    if planned.wake.is_some_and(|wake| wake <= planned.at) {
        // The plan requested an instant that had passed: the pass does not wait for time. With a
        // pause, a defect in a plan does not become a storm.
        return Next {
            wake: Wake::At(None),
            retry: retry.or(pause(FailureClass::Transient, failures, lane)),
            failed: true,
        };
    }
    Next {
        wake: Wake::At(planned.wake),
        retry,
        failed: class.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::run::pass::Planned;

    fn timestamp(seconds: i64) -> Timestamp {
        Timestamp::constant(seconds, 0)
    }

    fn passed(wake: Option<i64>, failure: Option<Failure>) -> Passed {
        Passed {
            planned: Some(Planned {
                at: timestamp(10),
                wake: wake.map(timestamp),
            }),
            failure,
        }
    }

    #[test]
    fn successful_plan_is_requeued_at_its_wake_only() {
        for wake in [None, Some(11)] {
            let next = next(&passed(wake, None), 0, Lane::Ordinary);
            assert_eq!(next.wake, Wake::At(wake.map(timestamp)));
            assert_eq!((next.retry, next.failed), (None, false));
        }
    }

    #[test]
    fn a_failure_adds_a_retry_and_leaves_the_wake_alone() {
        let busy = Failure::transient("ServerBusy", "later");
        let next = next(&passed(Some(11), Some(busy)), 9, Lane::Ordinary);
        assert_eq!(next.wake, Wake::At(Some(timestamp(11))));
        assert_eq!(next.retry, Some(Duration::from_millis(25_600)));
    }

    #[test]
    fn a_pass_without_a_plan_keeps_the_wake_of_the_one_before() {
        let broken = Passed {
            planned: None,
            failure: Some(Failure::transient("Panic", "a defect")),
        };
        let next = next(&broken, 0, Lane::Urgent);
        assert_eq!(next.wake, Wake::AsBefore);
        assert!(next.retry.is_some());
    }

    #[test]
    fn a_plan_that_asks_for_an_instant_that_has_passed_does_not_become_a_storm() {
        for failures in 0..12 {
            for wake in [9, 10] {
                let next = next(&passed(Some(wake), None), failures, Lane::Ordinary);
                assert_eq!(next.wake, Wake::At(None));
                assert!(next.failed);
                assert!(next.retry >= Some(Duration::from_millis(50)), "{next:?}");
            }
        }
    }
}
