//! One look at one object.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
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

/// How often a pass begins anew because it found children that it had not known of, or because a plan asked for it.
const ATTEMPTS: usize = 5;

/// How many questions a decision may ask.
const QUESTIONS: usize = 16;

/// Why a pass has no decision.
enum Undecided {
    /// Another decision would be made now, whatever the answer would have been.
    Overtaken,
    /// It asks again and again.
    Endless,
}

/// What a pass led to, for the queue.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// `None` if it did not get as far as a plan: the wake of the one before still holds.
    pub(crate) planned: Option<Planned>,
    pub(crate) failure: Option<Failure>,
}

/// The times of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// The instant that it was made for.
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
    /// Looks at one object, in these steps:
    ///
    /// 1. **observe**: the object and its children come from stores, in which our own last writes
    ///    are, as does [`Observe::known`].
    /// 2. **decide**: [`Controller::decide`], for one instant. What it asks is read by
    ///    [`Observe::answer`]; what is due asks nothing. An object that is gone has
    ///    [`Controller::orphaned`] instead.
    /// 3. **carry out**: stage by stage. If a child is found that nobody had told of, or time has
    ///    gone past the wake of a plan that does more than take away, the pass begins anew, since another plan
    ///    would be made now. So it does after a plan that asks for it, with what that wrote.
    /// 4. **status**: from the decision and the outcome; written at most once, only if it differs. Events follow
    ///    the write, once each.
    /// 5. **wake**: the queue brings the object back at the plan's wake, and earlier if the pass
    ///    failed, never later.
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
            "Unsettled",
            format!("gave up after {ATTEMPTS} attempts: child objects keep changing"),
        ))
    }

    /// The children that the watch shows, and what earlier attempts of this pass have found besides.
    fn live(&self, uid: &str, object: Option<&C::Object>, found: &[Live]) -> Vec<Live> {
        let adopts = object.and_then(|object| Adopts::of(self.controller.as_ref(), object));
        let mut live = self.children.of(uid, adopts.as_ref());
        for one in found {
            let is_there = |known: &Live| known.object.metadata.uid == one.object.metadata.uid;
            if !live.iter().any(is_there) {
                live.push(one.clone());
            }
        }
        live
    }

    /// `None` if the pass has to begin anew; `found` is what it then knows besides.
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
                let message = format!("observing {title} takes too long");
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

    /// What a pass leads to that has to wait for lists. When they are complete everything is looked at
    /// again.
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
        // What looks changed or lost may be what a missing list would show. Time needs none.
        let until = self.controller.lasts_until(Some(object), live);
        let over = until.is_some_and(|until| has_come(now, until));
        (!over).then(|| Passed::planned(now, until, None))
    }

    /// Asks until the controller has decided, each time for the same instant. What is due waits for no
    /// answer: as soon as time decides, or the object has changed, the pass begins anew.
    async fn decide(
        &self,
        now: Timestamp,
        uid: &str,
        object: &C::Object,
        live: &[Live],
    ) -> Result<Decision<C::State>, Undecided> {
        let mut facts = self.observe.known(object);
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

    /// Waits until an instant has come, or the object is not what it was.
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
            // After the subscription: what changed before it is seen here.
            let known = self.objects.by_uid(uid);
            if known.is_none_or(|known| known.meta().resource_version != *version) {
                return;
            }
            let left = until.map(|until| until.duration_since(self.cx.now()));
            let left = left.map(|left| Duration::try_from(left).unwrap_or_default());
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

    /// The object is gone or ending; children that are left are looked at as orphans.
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
        // Whatever became of the object, what was granted for it is over by then.
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

    /// A store may lag behind: before children are given up, the API server itself says that
    /// their object is gone. Not asked again when the watch has shown the deletion.
    async fn confirm_gone(&self, uid: &str, live: &[Live]) -> Result<(), Failure> {
        if self.objects.is_gone(uid) {
            return Ok(());
        }
        // Every claim is looked at: the marks of a child can be forged. Without a name nobody can be
        // asked; to end what the lists do not justify is the safe side of that doubt.
        for (namespace, name) in self.claims(uid, live) {
            if !self.exists(uid, namespace, name).await? {
                continue;
            }
            if !self.objects.is_undecodable(uid) {
                return Err(Failure::transient(
                    "NotSeenYet",
                    format!("{name} exists, but the watch has not shown it yet"),
                ));
            }
            tracing::warn!(
                controller = self.controller.name(),
                name,
                "ending what was made for an object that does not decode"
            );
        }
        Ok(())
    }

    /// Whether the API server has the object with this UID under this name.
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

    /// Namespaces and names of the objects that children say they were made for.
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
                let lag = lag.try_into().unwrap_or_default();
                self.counts.changed(transition.reason, lag);
            }
            self.events
                .publish(object.object_ref(&self.kind), transition);
        }
        Ok(())
    }
}
