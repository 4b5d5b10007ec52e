//! Carries out a plan: its stages in sequence, the steps of a stage concurrently. The API server's
//! responses determine the result, never the desired state.

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::DynamicObject;
use oz_api::labels;
use oz_audit::Sink;
use oz_core::controller::{
    Child, Failure, Key, Live, Outcome, Plan, Reference, Sought, Step, Which, has_content,
    has_metadata,
};
use oz_core::lifecycle::window::has_come;
use oz_runtime::{Clock, Store, SubscriberId};
use serde_json::Value;

use super::children::Children;
use super::priority::Priority;
use super::shared::Shared;
use super::write::{Created, Deleted, Writer};
use crate::observe::Belonging;
use crate::ports::Ports;

/// The context in which a plan is carried out.
pub(crate) struct Executor<'a, K: Resource> {
    pub(crate) writer: &'a Writer,
    pub(crate) sink: &'a dyn Sink,
    pub(crate) ports: &'a Ports,
    pub(crate) children: &'a Children,
    pub(crate) objects: &'a Store<K>,
    pub(crate) subscriber: SubscriberId,
    pub(crate) kind: &'a K::DynamicType,
    /// The UID of the object that owns the children.
    pub(crate) owner: &'a str,
    /// The object itself; `None` if it is deleted.
    pub(crate) object: Option<&'a K>,
    /// The clock that shows when a plan is too late.
    pub(crate) clock: &'a dyn Clock,
    /// The queue that gave the pass its slot.
    pub(crate) shared: &'a Shared,
    /// The receiver of created children.
    pub(crate) on_created: &'a dyn OnCreated,
}

/// The receiver of children that are created, or that cannot be.
pub(crate) trait OnCreated: Sync {
    fn created(&self, owner: &str, child: &Live);
    /// Receives a key that another object has. Returns whether the controller would make another
    /// plan now.
    fn taken(&self, owner: &str, key: &Key) -> bool;
}

/// The result of carrying out a plan, for the pass.
#[derive(Default)]
pub(crate) struct CarriedOut {
    pub(crate) outcome: Outcome,
    /// True if the controller would make another plan now: a step found an unknown child, or the
    /// plan's wake is reached.
    pub(crate) stale: bool,
    /// The objects that a step looked for and found, although no watch had shown them.
    pub(crate) found: Vec<Live>,
    /// True if the object itself was deleted.
    pub(crate) deleted_self: bool,
}

/// The result of one step.
enum Done {
    Nothing,
    Live(Box<DynamicObject>),
    Gone,
    /// The plan does not fit the existing objects: a step found an unknown object, or the plan is
    /// too late.
    Stale,
    /// The objects that a look found.
    Seen(Vec<DynamicObject>),
    /// The answer of the port.
    Answered(Value),
    DeletedSelf,
}

impl<K> Executor<'_, K>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    /// Carries out `plan`, which was made for the instant `at`. A step that fails, or finds an unknown object,
    /// ends the plan after its stage. No stage begins once the plan's wake is reached: the remainder of a grant
    /// that a slow API server delayed must not be created after the agreed second. A plan that only removes
    /// objects continues: the next one would not know why an object is gone.
    pub(crate) async fn carry_out(
        &self,
        plan: &Plan,
        at: Timestamp,
        live: Vec<Live>,
    ) -> CarriedOut {
        let wake = plan
            .wake
            .filter(|wake| !has_come(at, *wake) && !plan.only_takes());
        let mut carried = CarriedOut {
            outcome: Outcome {
                live,
                ..Outcome::default()
            },
            ..CarriedOut::default()
        };
        let too_late = || wake.is_some_and(|wake| has_come(self.clock.now(), wake));
        for (number, stage) in plan.stages.iter().enumerate() {
            if too_late() {
                carried.stale = true;
                break;
            }
            if stage.iter().any(|step| matches!(step, Step::Effect(_))) {
                // The port determines the duration of an effect, and there are children that must
                // be deleted in time.
                self.shared.give_up_slot(self.owner);
            }
            let live = &carried.outcome.live;
            let done = stage.iter().map(async |step| {
                let _slot = match step {
                    // A port that does not respond must not delay the writes of others.
                    Step::Effect(_) => None,
                    Step::Delete(_) if number == 0 => {
                        Some(self.writer.write_slots.take(Priority::Urgent).await)
                    }
                    _ => Some(self.writer.write_slots.take(Priority::Ordinary).await),
                };
                // The step may have waited for its slot.
                if too_late() {
                    return Ok(Done::Stale);
                }
                self.step(step, live).await
            });
            let done = join_all(done).await;
            for (step, done) in stage.iter().zip(done) {
                carried.note(step, done);
            }
            if carried.outcome.failure.is_some() || carried.stale || carried.deleted_self {
                break;
            }
        }
        if carried.outcome.failure.is_none() {
            carried.outcome.failure.clone_from(&plan.obstacle);
        }
        carried
    }

    async fn step(&self, step: &Step, live: &[Live]) -> Result<Done, Failure> {
        match step {
            Step::Record(record) => {
                self.writer.permitted()?;
                self.sink.record(record).await.map(|()| Done::Nothing)
            }
            Step::Apply(child) => self.apply(child, live).await,
            Step::Look(sought) => {
                let seen = self.writer.look(sought, self.children).await;
                seen.map(Done::Seen)
            }
            Step::Effect(effect) => {
                self.writer.permitted()?;
                let answer = self.ports.carry_out(effect).await;
                answer.map(Done::Answered)
            }
            Step::Delete(target) => self.delete(target).await,
            Step::Own(owner) => {
                let object = self.object()?;
                let owners = object.meta().owner_references.iter().flatten();
                if !owners.into_iter().any(|known| known.uid == owner.uid) {
                    let written = self.writer.own(object, self.kind, owner).await?;
                    self.objects.wrote(written, Some(self.subscriber));
                }
                Ok(Done::Nothing)
            }
            Step::Hold(finalizer) => {
                let object = self.object()?;
                let mut finalizers = object.meta().finalizers.iter().flatten();
                if !finalizers.any(|known| known == finalizer) {
                    let written = self.writer.hold(object, self.kind, finalizer).await?;
                    self.objects.wrote(written, Some(self.subscriber));
                }
                Ok(Done::Nothing)
            }
            Step::Adopt(target, owner) => {
                let with = |mut owners: Vec<OwnerReference>| {
                    owners.push(owner.clone());
                    owners
                };
                self.set_owners(target, "adopt", live, with).await
            }
            Step::Disown(target) => {
                let without = |mut owners: Vec<OwnerReference>| {
                    owners.retain(|owner| owner.uid != self.owner);
                    owners
                };
                self.set_owners(target, "disown", live, without).await
            }
            Step::Release(finalizer) => {
                let object = self.object()?;
                let released = self.writer.release(object, self.kind, finalizer).await?;
                let Some(written) = released else {
                    // It was the last finalizer: the object is deleted with it.
                    self.objects.gone(self.owner, Some(self.subscriber));
                    return Ok(Done::DeletedSelf);
                };
                self.objects.wrote(written, Some(self.subscriber));
                Ok(Done::Nothing)
            }
            Step::DeleteSelf => {
                let metadata = self.object()?.meta();
                let target = Reference {
                    resource: self.objects.resource().clone(),
                    namespace: metadata.namespace.clone(),
                    name: metadata.name.clone(),
                    uid: Some(self.owner.to_owned()),
                };
                // If the object is only terminating, the watch shows that.
                if let Deleted::Gone = self.writer.delete(&target, None).await? {
                    self.objects.gone(self.owner, Some(self.subscriber));
                }
                Ok(Done::DeletedSelf)
            }
        }
    }

    fn object(&self) -> Result<&K, Failure> {
        self.object
            .ok_or_else(|| Failure::invalid("NoObject", "the object does not exist any more"))
    }

    /// Changes the owners of a child that the plan knows.
    async fn set_owners(
        &self,
        target: &Reference,
        verb: &'static str,
        live: &[Live],
        change: impl FnOnce(Vec<OwnerReference>) -> Vec<OwnerReference>,
    ) -> Result<Done, Failure> {
        let store = self.children.kind(&target.resource)?;
        let mut known = live.iter();
        let known = known.find(|known| known.object.metadata.uid == target.uid);
        let (Some(known), Some(uid)) = (known, &target.uid) else {
            return Ok(Done::Gone);
        };
        let before = known.object.metadata.owner_references.iter().flatten();
        let before: Vec<_> = before.cloned().collect();
        let owners = change(before.clone());
        if before == owners {
            return Ok(Done::Nothing);
        }
        let Some(object) = self.writer.set_owners(known, verb, &owners).await? else {
            store.gone(uid);
            return Ok(Done::Gone);
        };
        store.wrote(object.clone());
        Ok(Done::Live(Box::new(object)))
    }

    async fn apply(&self, child: &Child, live: &[Live]) -> Result<Done, Failure> {
        let store = self.children.kind(&child.resource)?;
        let belonging = &self.children.belonging;
        let key = child.key();
        if belonging.owner(&child.object.metadata) != Some(self.owner) {
            let message = format!("{key} has no mark of the object for which it is written");
            return Err(Failure::invalid("Unmarked", message));
        }
        // An object with another mark is changed only if the plan names its UID: it is not taken
        // over.
        let is_meant = |live: &&Live| {
            let (known, meant) = (&live.object.metadata.uid, &child.object.metadata.uid);
            belonging.owner(&live.object.metadata) == Some(self.owner)
                || (meant.is_some() && known == meant)
        };
        let mut known = live.iter().filter(|live| live.key() == key);
        if let Some(known) = known.find(is_meant) {
            let (known_object, desired) = (&known.object, &child.object);
            if has_metadata(&known_object.metadata, &desired.metadata)
                && (has_content(known_object, desired)
                    || store.applied.holds(desired, known_object))
            {
                return Ok(Done::Nothing);
            }
            let object = self.writer.apply(child, known).await?;
            store.applied.note(desired, &object);
            store.wrote(object.clone());
            return Ok(Done::Live(Box::new(object)));
        }
        match self.writer.create(child).await? {
            Created::New(object) => {
                store.applied.note(&child.object, &object);
                store.wrote(object.clone());
                let made = Live {
                    resource: child.resource.clone(),
                    object,
                };
                self.on_created.created(self.owner, &made);
                Ok(Done::Live(Box::new(made.object)))
            }
            Created::Exists(object) => {
                match self.check_ours(&key, &object) {
                    Err(_) if self.on_created.taken(self.owner, &key) => return Ok(Done::Stale),
                    answer => answer?,
                }
                store.wrote(object);
                Ok(Done::Stale)
            }
        }
    }

    /// Checks whether an object with the key of a child belongs to this very object.
    fn check_ours(&self, key: &Key, object: &DynamicObject) -> Result<(), Failure> {
        if let Belonging::Controlled = self.children.belonging {
            return self.check_controlled(key, object);
        }
        let is_oz = object
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(labels::MANAGED_BY))
            .is_some_and(|manager| manager == labels::OZ);
        match labels::owner_uid(&object.metadata) {
            Some(owner) if is_oz && owner == self.owner => Ok(()),
            Some(owner) if is_oz => Err(Failure::conflict(format!(
                "{key} exists already and belongs to the object with UID {owner}; it is created \
                 here after the deletion of that object"
            ))),
            _ => Err(Failure::conflict(format!(
                "{key} exists already and is not managed by oz; oz does not change it. Delete or \
                 rename it, or choose another name for this object"
            ))),
        }
    }

    fn check_controlled(&self, key: &Key, object: &DynamicObject) -> Result<(), Failure> {
        match labels::controller(&object.metadata) {
            Some(controller) if controller.uid == self.owner => Ok(()),
            Some(controller) => Err(Failure::conflict(format!(
                "{key} exists already and is controlled by {} {}; it is created here after the \
                 deletion of that object; rename this object to create it earlier",
                controller.kind, controller.name
            ))),
            None => Err(Failure::conflict(format!(
                "{key} exists already and has no controller; oz does not change it. Delete or \
                 rename it, or have the parent adopt it: set the labels that the parent selects, \
                 and the label {} with the parent's UID",
                labels::CONTROLLER_UID
            ))),
        }
    }

    async fn delete(&self, target: &Reference) -> Result<Done, Failure> {
        let store = self.children.kind(&target.resource)?;
        match self.writer.delete(target, store.grace_seconds).await? {
            Deleted::Gone => {
                target.uid.iter().for_each(|uid| store.gone(uid));
                Ok(Done::Gone)
            }
            Deleted::Ending(object) => {
                store.wrote(DynamicObject::clone(&object));
                Ok(Done::Live(object))
            }
        }
    }
}

impl CarriedOut {
    /// Updates the known objects after a step.
    fn note(&mut self, step: &Step, done: Result<Done, Failure>) {
        if let (Ok(Done::Seen(objects)), Step::Look(sought)) = (&done, step) {
            self.seen(sought, objects);
            return;
        }
        let live = &mut self.outcome.live;
        match (done, step) {
            (Ok(Done::Live(object)), _) => {
                let resource = match step {
                    Step::Apply(child) => &child.resource,
                    Step::Delete(target) | Step::Adopt(target, _) | Step::Disown(target) => {
                        &target.resource
                    }
                    _ => return,
                };
                let now = Live {
                    resource: resource.clone(),
                    object: *object,
                };
                let key = now.key();
                match live.iter_mut().find(|known| known.key() == key) {
                    Some(known) => *known = now,
                    None => live.push(now),
                }
            }
            (
                Ok(Done::Gone),
                Step::Delete(target) | Step::Adopt(target, _) | Step::Disown(target),
            ) => {
                let is_target = |known: &Live| known.object.metadata.uid == target.uid;
                live.retain(|known| target.uid.is_none() || !is_target(known));
            }
            (Ok(Done::Answered(answer)), Step::Effect(effect)) => {
                self.outcome.answers.insert(effect, answer);
            }
            (Ok(Done::Stale), _) => self.stale = true,
            (Ok(Done::DeletedSelf), _) => self.deleted_self = true,
            (Ok(_), _) => {}
            (Err(failure), _) => {
                self.outcome.failure.get_or_insert(failure);
            }
        }
    }
}

impl CarriedOut {
    /// Adds the objects that a look found. The plan is stale if it did not know them.
    fn seen(&mut self, sought: &Sought, objects: &[DynamicObject]) {
        if let Which::Name(_) = &sought.which {
            // The API server's response is newer than what a watch showed before.
            self.outcome.live.retain(|known| {
                let uid = &known.object.metadata.uid;
                !sought.is(known) || objects.iter().any(|object| object.metadata.uid == *uid)
            });
        }
        for object in objects {
            let now = Live {
                resource: sought.resource.clone(),
                object: object.clone(),
            };
            let uid = &object.metadata.uid;
            let mut live = self.outcome.live.iter_mut();
            if let Some(known) = live.find(|known| known.object.metadata.uid == *uid) {
                *known = now;
            } else {
                self.outcome.live.push(now.clone());
                self.found.push(now);
                self.stale = true;
            }
        }
    }
}
