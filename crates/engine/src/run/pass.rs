//! The pass over one object.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::{SignedDuration, Timestamp};
use kube::Resource;
use kube::api::GetParams;
use kube::core::{PartialObjectMeta, Request};
use oz_api::labels;
use oz_core::controller::{Controller, Decision, Failure, Key, Live, Verdict, merge_patch};
use oz_core::lifecycle::window::has_come;
use tokio::sync::Notify;

use super::carry_out::{CarriedOut, Executor, OnCreated};
use super::children::Adopts;
use super::priority::Priority;
use super::runner::{Runner, SLICE};
use super::write::title;
use crate::observe::{Observe, within};

/// The maximum number of attempts of a pass, which begins again because it found unknown children, or because a
/// plan requested it.
const ATTEMPTS: usize = 5;

/// The maximum number of questions of a decision.
const QUESTIONS: usize = 16;

/// The reason why a pass has no decision.
enum Undecided {
    /// The controller would decide differently now, regardless of the answer.
    Overtaken,
    /// The controller asks again and again.
    Endless,
}

/// The result of a pass, for the queue.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// The times of the plan; `None` if the pass ended before it had a plan: the wake of the one
    /// before still holds.
    pub(crate) planned: Option<Planned>,
    pub(crate) failure: Option<Failure>,
}

/// The times of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// The instant that the plan was made for.
    pub(crate) at: Timestamp,
    pub(crate) wake: Option<Timestamp>,
}

impl Passed {
    fn failed(failure: Failure) -> Self {
        Self {
            failure: Some(failure),
            planned: None,
        }
    }

    fn planned(at: Timestamp, wake: Option<Timestamp>, failure: Option<Failure>) -> Self {
        Self {
            planned: Some(Planned { at, wake }),
            failure,
        }
    }
}

impl<C, O> OnCreated for Runner<C, O>
where
    C: Controller,
    O: Observe<C>,
{
    fn created(&self, owner: &str, child: &Live) {
        self.observe.created(owner, child);
    }

    fn taken(&self, owner: &str, key: &Key) -> bool {
        self.observe.taken(owner, key)
    }
}

impl<C, O> Runner<C, O>
where
    C: Controller,
    O: Observe<C>,
{
    /// Reconciles one object, in these steps:
    ///
    /// 1. **observe**: the object and its children come from stores, which contain the engine's own last writes,
    ///    as does [`Observe::facts`].
    /// 2. **decide**: [`Controller::decide`], for one instant. [`Observe::answer`] reads the data that it asks
    ///    for; a due decision asks nothing. For an object that is deleted, [`Controller::orphaned`] is called
    ///    instead.
    /// 3. **carry out**: stage by stage. If a step finds an unknown child, or the wake of a plan that does more
    ///    than remove objects is reached, the pass begins again, since the controller would make another plan
    ///    now. The pass also begins again after a plan that requests it, with the objects that the plan wrote.
    /// 4. **status**: from the decision and the outcome; written at most once, only if it differs. Events follow
    ///    the write, once each.
    /// 5. **wake**: the queue returns the object at the plan's wake, and earlier if the pass failed, never
    ///    later.
    pub(crate) async fn pass(&self, uid: &str) -> Passed {
        let mut found = Vec::new();
        for _ in 0..ATTEMPTS {
            let passed = match self.objects.by_uid(uid) {
                Some(object) => self.object_pass(uid, &object, &mut found).await,
                None => self.orphan_pass(uid, &mut found).await,
            };
            if let Some(passed) = passed {
                return passed;
            }
        }
        Passed::failed(Failure::transient(
            "NotConverging",
            format!("gave up after {ATTEMPTS} attempts: child objects keep changing"),
        ))
    }

    /// Returns the children that the watch shows, and those that earlier attempts of this pass have
    /// found in addition.
    fn live(&self, uid: &str, object: Option<&C::Object>, found: &[Live]) -> Vec<Live> {
        let adopts =
            object.and_then(|object| Adopts::from_object(self.controller.as_ref(), object));
        let mut live = self.children.list_for_owner(uid, adopts.as_ref());
        for one in found {
            let is_there = |known: &Live| known.object.metadata.uid == one.object.metadata.uid;
            if !live.iter().any(is_there) {
                live.push(one.clone());
            }
        }
        live
    }

    /// Runs one attempt; returns `None` if the pass has to begin again; `found` then contains the
    /// additional children.
    async fn object_pass(
        &self,
        uid: &str,
        object: &Arc<C::Object>,
        found: &mut Vec<Live>,
    ) -> Option<Passed> {
        let live = self.live(uid, Some(object), found);
        if let Some(waits) = self.waits(object, &live) {
            return Some(waits);
        }
        let now = self.cx.now();
        let decided = self.decide(now, uid, object, &live);
        let decision = match tokio::time::timeout(self.observe.timeout(), decided).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(Undecided::Overtaken)) => return None,
            Ok(Err(Undecided::Endless)) => {
                let message = format!(
                    "internal error: reconciling {} asks without end (please report)",
                    title(object.as_ref(), &self.kind)
                );
                return Some(Passed::failed(Failure::transient("Undecided", message)));
            }
            Err(_) => {
                let title = title(object.as_ref(), &self.kind);
                let message = format!("observing {title} timed out");
                return Some(Passed::failed(Failure::transient(
                    "ObserveTimeout",
                    message,
                )));
            }
        };
        let plan = &decision.plan;
        let carried = self
            .executor(uid, Some(object))
            .carry_out(plan, now, live)
            .await;
        if carried.stale {
            found.extend(carried.found);
            return None;
        }
        if carried.deleted_self {
            return Some(self.deleted_self(uid, now, carried));
        }
        if plan.again && carried.outcome.failure.is_none() {
            return None;
        }
        let status = self
            .controller
            .status(now, object, &decision, &carried.outcome);
        let written = self.write_status(object, status).await;
        let failure = carried.outcome.failure.or(written.err());
        Some(Passed::planned(now, plan.wake, failure))
    }

    /// Returns the result of a pass that has to wait for lists. When they are complete, all objects
    /// are reconciled again.
    fn waits(&self, object: &C::Object, live: &[Live]) -> Option<Passed> {
        if self.complete.load(Ordering::Acquire) {
            return None;
        }
        let now = self.cx.now();
        let waited = self.waited.load(Ordering::Acquire);
        if waited && self.own_are_listed() {
            let decided = self.controller.is_decided(object, live);
            return (!decided).then(|| Passed::planned(now, None, None));
        }
        // A missing list may contain the objects that seem changed or deleted. Time needs no list.
        let until = self.controller.lasts_until(Some(object), live);
        let over = until.is_some_and(|until| has_come(now, until));
        (!over).then(|| Passed::planned(now, until, None))
    }

    /// Calls the controller until it has decided, each time for the same instant. A due decision waits
    /// for no answer: as soon as time decides, or the object has changed, the pass begins again.
    async fn decide(
        &self,
        now: Timestamp,
        uid: &str,
        object: &C::Object,
        live: &[Live],
    ) -> Result<Decision<C::State>, Undecided> {
        let mut facts = self.observe.facts(object);
        for _ in 0..QUESTIONS {
            let (question, until) = match self.controller.decide(now, object, &facts, live) {
                Verdict::Decided(decision) => return Ok(decision),
                Verdict::Need { question, until } => (question, until),
            };
            let until = until.filter(|until| !has_come(now, *until));
            tokio::select! {
                () = self.observe.answer(&self.cx, object, question, &mut facts) => {}
                () = self.overtaken(until, uid, object) => return Err(Undecided::Overtaken),
            }
        }
        Err(Undecided::Endless)
    }

    /// Waits until an instant is reached, or the object has changed.
    async fn overtaken(&self, until: Option<Timestamp>, uid: &str, object: &C::Object) {
        let changed = Arc::new(Notify::new());
        let (this, notify) = (uid.to_owned(), Arc::clone(&changed));
        let _subscription = self.objects.subscribe(move |change| {
            if change.object().meta().uid.as_deref() == Some(&this) {
                notify.notify_one();
            }
        });
        let version = &object.meta().resource_version;
        loop {
            // After the subscription: a change before it is visible here.
            let known = self.objects.by_uid(uid);
            if known.is_none_or(|known| known.meta().resource_version != *version) {
                return;
            }
            let left = until.map(|until| until.duration_since(self.cx.now()));
            let left = left.map(|left| left.max(SignedDuration::ZERO).unsigned_abs());
            if left.is_some_and(|left| left.is_zero()) {
                return;
            }
            tokio::select! {
                () = changed.notified() => {}
                // A clock that is set is noticed within a slice.
                () = tokio::time::sleep(left.unwrap_or(SLICE).min(SLICE)), if left.is_some() => {}
            }
        }
    }

    /// Ends the pass of an object that is deleted or terminating; its remaining children are
    /// reconciled as orphans.
    fn deleted_self(&self, uid: &str, now: Timestamp, carried: CarriedOut) -> Passed {
        if self.objects.by_uid(uid).is_none() && !carried.outcome.live.is_empty() {
            self.push_again(uid);
        }
        Passed::planned(now, None, carried.outcome.failure)
    }

    async fn orphan_pass(&self, uid: &str, found: &mut Vec<Live>) -> Option<Passed> {
        let live = self.live(uid, None, found);
        let last = self.departed.get(uid);
        if live.is_empty() && last.is_none() {
            return Some(Passed::planned(self.cx.now(), None, None));
        }
        // The access that was granted for the object has expired by then, in any case.
        let until = self.controller.lasts_until(last.as_deref(), &live);
        let over = until.is_some_and(|until| has_come(self.cx.now(), until));
        if !over && let Err(failure) = self.confirm_gone(uid, &live).await {
            return Some(Passed::planned(self.cx.now(), until, Some(failure)));
        }
        let now = self.cx.now();
        let plan = self.controller.orphaned(now, last.as_deref(), &live);
        let carried = self.executor(uid, None).carry_out(&plan, now, live).await;
        if carried.stale {
            found.extend(carried.found);
            return None;
        }
        if carried.outcome.failure.is_none() {
            self.departed.forget(uid);
        }
        Some(Passed::planned(now, plan.wake, carried.outcome.failure))
    }

    /// Confirms that an object is deleted. A store may lag behind: before children are deleted, the
    /// API server itself must confirm that their object is gone. It is not asked again when the
    /// watch has shown the deletion.
    async fn confirm_gone(&self, uid: &str, live: &[Live]) -> Result<(), Failure> {
        if self.objects.is_gone(uid) {
            return Ok(());
        }
        // Every claim is checked: the marks of a child can be forged. Without a name there is no
        // object to ask for; to end access that the lists do not justify is the safe side of that
        // doubt.
        for (namespace, name) in self.claims(uid, live) {
            if !self.exists(uid, namespace, name).await? {
                continue;
            }
            if !self.objects.is_undecodable(uid) {
                return Err(Failure::transient(
                    "CacheOutdated",
                    format!("{name} exists, but the watch has not received it yet"),
                ));
            }
            tracing::warn!(
                controller = self.controller.name(),
                name,
                "deleting the children of an object that does not decode"
            );
        }
        Ok(())
    }

    /// Checks whether the API server has the object with this UID under this name.
    async fn exists(
        &self,
        uid: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<bool, Failure> {
        let url = C::Object::url_path(&self.kind, namespace);
        let request = Request::new(url).get_metadata(name, &GetParams::default());
        let read = within(
            async {
                let request = request.map_err(kube::Error::BuildRequest)?;
                let answer = self
                    .cx
                    .client
                    .request::<PartialObjectMeta<C::Object>>(request);
                match answer.await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
                    answer => answer.map(Some),
                }
            },
            || format!("failed to look for the owner {name} of orphaned children"),
        );
        let found = read.await?;
        Ok(found.is_some_and(|object| object.metadata.uid.as_deref() == Some(uid)))
    }

    /// Returns the namespaces and names of the objects that children name as their owners.
    fn claims<'a>(&self, uid: &str, live: &'a [Live]) -> BTreeSet<(Option<&'a str>, &'a str)> {
        let claim = |child: &'a Live| {
            let metadata = &child.object.metadata;
            let by_annotation = metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(labels::OWNER_NAME));
            let mut owners = metadata.owner_references.iter().flatten();
            let name = match by_annotation {
                Some(name) => name,
                None => &owners.find(|owner| owner.uid == uid)?.name,
            };
            let namespace = metadata.namespace.as_deref();
            let namespace = namespace.filter(|_| !self.objects.is_cluster_scoped());
            Some((namespace, name.as_str()))
        };
        live.iter().filter_map(claim).collect()
    }

    fn executor<'a>(
        &'a self,
        owner: &'a str,
        object: Option<&'a C::Object>,
    ) -> Executor<'a, C::Object> {
        Executor {
            writer: &self.writer,
            sink: self.sink.as_ref(),
            ports: &self.ports,
            children: &self.children,
            objects: &self.objects,
            subscriber: self.subscription.id(),
            kind: &self.kind,
            owner,
            object,
            clock: self.cx.clock.as_ref(),
            shared: &self.shared,
            on_created: self,
        }
    }

    async fn write_status(&self, object: &C::Object, after: C::Status) -> Result<(), Failure> {
        let before = self.controller.current_status(object);
        if before.as_ref() == Some(&after) {
            return Ok(());
        }
        let json = |status: &Option<C::Status>| {
            serde_json::to_value(status).map_err(|error| {
                Failure::invalid("Status", format!("failed to encode the status: {error}"))
            })
        };
        let after = Some(after);
        if let Some(patch) = merge_patch(&json(&before)?, &json(&after)?) {
            let _slot = self.writer.write_slots.take(Priority::Ordinary).await;
            let written = self.writer.patch_status(object, &self.kind, &patch).await?;
            self.objects.wrote(written, Some(self.subscription.id()));
        }
        let Some(after) = after else { return Ok(()) };
        self.observe
            .reported(self.cx.now(), before.as_ref(), &after);
        for transition in self.controller.transitions(object, before.as_ref(), &after) {
            if let Some(due) = transition.due {
                let lag = self.cx.now().duration_since(due);
                let lag = lag.max(SignedDuration::ZERO).unsigned_abs();
                self.counts.changed(transition.reason, lag);
            }
            self.events
                .publish(object.object_ref(&self.kind), transition);
        }
        Ok(())
    }
}
