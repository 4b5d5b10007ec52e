//! The seam between deciding and doing: a [`Controller`] is a pure function of what exists and
//! what time it is. Nothing here or behind these traits' methods reads a clock, a client,
//! randomness or the environment; the engine does, and hands in what it found.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::audit::Record;

/// Decides what should exist for one kind of object, and says in its status what came of it.
///
/// Both [`plan`](Controller::plan) and [`status`](Controller::status) are deterministic and
/// idempotent: called again with what their own plan brought about, they ask for nothing more.
pub trait Controller: Send + Sync + 'static {
    /// The kind that is reconciled.
    type Object: Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// All that the plan needs besides the object and its children. Reads that failed are in here
    /// as values: a plan is made whatever could not be read, since an expiry must not wait for it.
    type Observed: Send + Sync;
    /// The status subresource.
    type Status: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync;

    /// Short name in lower case, such as `execaccessrequest`: the field manager is `oz/NAME`, and
    /// metrics and logs carry it as the label `controller`.
    fn name(&self) -> &'static str;

    /// Group, version, kind and plural of [`Controller::Object`]; `Default::default()` for a typed kind.
    fn dynamic_type(&self) -> <Self::Object as Resource>::DynamicType;

    /// The status that the object carries now.
    fn current_status(&self, object: &Self::Object) -> Option<Self::Status>;

    /// What to do now, and when time alone next changes the answer. `live` holds the object's
    /// children that exist, whoever changed them since: what counts as drift is decided here.
    fn plan(
        &self,
        now: Timestamp,
        object: &Self::Object,
        observed: &Self::Observed,
        live: &[Live],
    ) -> Plan;

    /// The status after the plan was carried out, as far as it went. `now` is the instant that the
    /// plan was made for.
    fn status(
        &self,
        now: Timestamp,
        object: &Self::Object,
        observed: &Self::Observed,
        outcome: &Outcome,
    ) -> Self::Status;

    /// What to do with children whose object is gone: it was deleted, perhaps while nobody
    /// watched. `object` is the last that was seen of it, if this process saw it go. By default each
    /// child is deleted, the last created first.
    fn orphaned(&self, now: Timestamp, object: Option<&Self::Object>, live: &[Live]) -> Plan {
        let _ = (now, object);
        Plan::default().then(
            live.iter()
                .rev()
                .map(|child| Step::Delete(child.reference())),
        )
    }

    /// Whether what is planned for the object follows from it and its children: something was granted,
    /// or is over. Such a one does not wait for lists of other kinds, which may never be complete.
    fn is_decided(&self, object: &Self::Object, live: &[Live]) -> bool {
        let _ = (object, live);
        false
    }

    /// Until when what was granted lasts, as far as that can be told from the object, if it can be read,
    /// and from what was made for it. What is over ends by this, although lists are missing that tell
    /// all of it; before that, nothing is done without them.
    fn lasts_until(&self, object: Option<&Self::Object>, live: &[Live]) -> Option<Timestamp> {
        let _ = (object, live);
        None
    }

    /// The events to publish on the object for the change from one status to the next.
    fn transitions(
        &self,
        object: &Self::Object,
        before: Option<&Self::Status>,
        after: &Self::Status,
    ) -> Vec<Transition> {
        let _ = (object, before, after);
        Vec::new()
    }
}

/// What is to be done, as a value that can be printed instead of carried out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// Stages, carried out one after the other; the steps of one stage run side by side. A step
    /// that fails ends the plan after its stage.
    pub stages: Vec<Vec<Step>>,
    /// The next instant at which time alone changes the plan. The pass after it is never later
    /// than this, whatever failed meanwhile.
    pub wake: Option<Timestamp>,
    /// Why the plan could not be all that was asked for: something that was to be observed was not
    /// there or could not be read. A transient one is tried again with backoff.
    pub obstacle: Option<Failure>,
}

impl Plan {
    /// Adds a stage; one without steps is left out.
    #[must_use]
    pub fn then(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        let stage: Vec<Step> = steps.into_iter().collect();
        if !stage.is_empty() {
            self.stages.push(stage);
        }
        self
    }

    /// Sets the instant at which the object must be looked at again; the earliest one holds.
    #[must_use]
    pub fn wake_at(mut self, at: Timestamp) -> Self {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
        self
    }

    /// Says why more could not be planned.
    #[must_use]
    pub fn because(mut self, obstacle: Failure) -> Self {
        self.obstacle = Some(obstacle);
        self
    }

    /// Every step, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.stages.iter().flatten()
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Step {
    /// Make this record durable; what follows happens only if that succeeded.
    Record(Record),
    /// Create the child, or bring the fields that it names to these values. A foreign object of
    /// the same name is a [`FailureClass::Conflict`], never taken over.
    Apply(Child),
    /// See whether this is there, whatever its labels say: children are known by labels, which others
    /// can take off. If it is, and the plan did not know, another plan is made that does.
    Look(Sought),
    /// Have a port do this, outside of Kubernetes.
    Effect(Effect),
    /// Delete this very object (its UID is a precondition). Already gone is success.
    Delete(Reference),
    /// Set the object's owner references, keeping those it has. For objects that were created
    /// before their owner.
    Own(k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference),
    /// Take this finalizer of ours off the reconciled object, which is being deleted: nothing that
    /// it stood for is left.
    Release(String),
    /// Delete the reconciled object itself.
    DeleteSelf,
}

/// What is looked for by the API server itself, since no label need tell of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sought {
    /// Of which kind.
    pub resource: ApiResource,
    /// In which namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Which of them.
    pub which: Which,
}

/// Which objects of a kind are looked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Which {
    /// The one of this name.
    Name(String),
    /// All that have this value in this field, such as `roleRef`. Those that bear the mark of the
    /// controller's own children are known from its watch.
    Having(&'static str, Value),
}

impl Sought {
    /// Whether this is, or would be, sought.
    #[must_use]
    pub fn is(&self, live: &Live) -> bool {
        let key = live.key();
        let here = key.kind == self.resource.kind
            && key.group == self.resource.group
            && key.namespace == self.namespace;
        here && match &self.which {
            Which::Name(name) => key.name == *name,
            Which::Having(field, value) => live.object.data.get(field) == Some(value),
        }
    }

    /// The object of kind `K` with this name.
    pub fn named<K>(namespace: Option<&str>, name: impl Into<String>) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self {
            resource: ApiResource::erase::<K>(&()),
            namespace: namespace.map(ToOwned::to_owned),
            which: Which::Name(name.into()),
        }
    }
}

/// What a port is asked to do: something outside of Kubernetes. What must be on record before it is a
/// [`Step::Record`] of an earlier stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Name of the port, such as `sessions`.
    pub port: String,
    /// What it is told by from others of this port: carried out again under the same key, by this
    /// process or the next one, it changes nothing more.
    pub key: String,
    /// What is asked for, in the port's own words.
    pub payload: Value,
}

/// What ports answered, by port and key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers(BTreeMap<String, BTreeMap<String, Value>>);

impl Answers {
    /// Takes in what a port answered.
    pub fn insert(&mut self, effect: &Effect, answer: Value) {
        let of_port = self.0.entry(effect.port.clone()).or_default();
        of_port.insert(effect.key.clone(), answer);
    }

    /// What a port answered to the effect of this key.
    #[must_use]
    pub fn get(&self, port: &str, key: &str) -> Option<&Value> {
        self.0.get(port)?.get(key)
    }

    /// All that a port answered, by key.
    pub fn of_port(&self, port: &str) -> impl Iterator<Item = (&str, &Value)> {
        let answers = self.0.get(port).into_iter().flatten();
        answers.map(|(key, answer)| (key.as_str(), answer))
    }
}

/// An object that should exist. Made from a typed object by a builder; see [`Child::new`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Child {
    /// Where it is written.
    pub resource: ApiResource,
    /// What is written: `metadata.name`, `metadata.namespace` and the fields that are ours.
    pub object: DynamicObject,
}

impl Child {
    /// A child with the content of a typed object. The object's labels must carry
    /// [`crate::labels::OWNER_UID`] and [`crate::labels::OWNER_KIND`], by which the engine finds
    /// it again; [`crate::labels::mark`] sets them.
    pub fn new<K>(object: &K) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let resource = ApiResource::erase::<K>(&());
        // A Kubernetes object always serialises to a JSON object; an empty one fails at the API
        // server with a clear message, should that ever be untrue.
        let mut data = serde_json::to_value(object).unwrap_or_default();
        if let Some(fields) = data.as_object_mut() {
            fields.remove("metadata");
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        let mut dynamic =
            DynamicObject::new(object.meta().name.as_deref().unwrap_or_default(), &resource);
        dynamic.metadata = object.meta().clone();
        dynamic.data = data;
        Self {
            resource,
            object: dynamic,
        }
    }

    /// Kind, namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::of(&self.resource, &self.object.metadata)
    }
}

/// A child that exists in the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Live {
    /// Where it was read from.
    pub resource: ApiResource,
    /// What was read.
    pub object: DynamicObject,
}

impl Live {
    /// Kind, namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::of(&self.resource, &self.object.metadata)
    }

    /// This very object, with its UID.
    #[must_use]
    pub fn reference(&self) -> Reference {
        Reference {
            resource: self.resource.clone(),
            namespace: self.object.metadata.namespace.clone(),
            name: self.object.metadata.name.clone().unwrap_or_default(),
            uid: self.object.metadata.uid.clone().unwrap_or_default(),
        }
    }

    /// The object as its own type; `None` if it is of another kind or does not decode.
    #[must_use]
    pub fn parse<K>(&self) -> Option<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        if self.resource.kind != K::kind(&()) || self.resource.group != K::group(&()) {
            return None;
        }
        self.object.clone().try_parse().ok()
    }
}

/// Kind, namespace and name: what two objects cannot share at one time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Key {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind, such as `RoleBinding`.
    pub kind: String,
    /// Namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl Key {
    fn of(resource: &ApiResource, metadata: &ObjectMeta) -> Self {
        Self {
            group: resource.group.clone(),
            kind: resource.kind.clone(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(formatter, "{} {namespace}/{}", self.kind, self.name),
            None => write!(formatter, "{} {}", self.kind, self.name),
        }
    }
}

/// One object and no other of its name: what a deletion is allowed to touch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reference {
    /// Where it is.
    pub resource: ApiResource,
    /// Namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// UID, the precondition of a deletion.
    pub uid: String,
}

/// What carrying out a plan led to. Status is computed from this, never from what was wished for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The children that exist now, as the API server answered.
    pub live: Vec<Live>,
    /// What stopped the plan: the first step that failed, or else the plan's own obstacle.
    pub failure: Option<Failure>,
    /// What ports answered to the plan's effects.
    pub answers: Answers,
}

/// Why something did not happen. The class decides about retries; class and reason are static, so
/// that metrics and events have a bounded vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What a retry could change.
    pub class: FailureClass,
    /// Reason in CamelCase for conditions, events and metric labels, such as `NameConflict`.
    pub reason: &'static str,
    /// What happened and what to do next, for people.
    pub message: String,
}

impl Failure {
    /// The reason of a command that cannot be rendered for this pod.
    pub const COMMAND_INVALID: &'static str = "AccessCommandInvalid";
    /// The reason of a foreign object in the place of one of ours.
    pub const NAME_CONFLICT: &'static str = "NameConflict";

    /// A failure that may be over at the next try.
    pub fn transient(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            class: FailureClass::Transient,
            reason,
            message: message.into(),
        }
    }

    /// A failure that lasts until somebody changes the input.
    pub fn invalid(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            class: FailureClass::Invalid,
            reason,
            message: message.into(),
        }
    }

    /// A failure because somebody else's object stands in the way.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self {
            class: FailureClass::Conflict,
            reason: Self::NAME_CONFLICT,
            message: message.into(),
        }
    }
}

/// What a retry could change.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::IntoStaticStr, strum::Display,
)]
pub enum FailureClass {
    /// May pass: tried again with backoff, never later than the plan's wake.
    Transient,
    /// Lasts until the object, or what it refers to, changes.
    Invalid,
    /// An object that is not ours holds the name: tried again slowly.
    Conflict,
}

/// An event for `kubectl describe`, published once for one change of status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Transition {
    /// True for an event of type `Warning`.
    pub warning: bool,
    /// Reason in CamelCase, such as `AccessGranted`.
    pub reason: &'static str,
    /// What was done, in CamelCase, such as `Grant`.
    pub action: &'static str,
    /// One sentence for people.
    pub note: String,
    /// The instant at which this was due, if there was one: the engine measures how late it is.
    pub due: Option<Timestamp>,
}
