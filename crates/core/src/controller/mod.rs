//! The seam between deciding and doing: a [`Controller`] is a pure function of what exists and
//! what time it is. Nothing here or behind these traits' methods reads a clock, a client,
//! randomness or the environment; the engine does, and hands in what it found.

mod objects;
mod sessions;

pub use objects::{Child, Key, Live, Reference, Sought, Which};
pub use sessions::{Opened, Sessions, SessionsEnded};

use std::fmt::Debug;
use std::hash::Hash;

use jiff::Timestamp;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::audit::Record;

/// Decides what should exist for one kind of object, and says in its status what came of it.
///
/// [`decide`](Controller::decide) is deterministic and idempotent: called again with what its own plan
/// brought about, it asks for nothing more.
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
    /// What is known besides the object and its children. Reads that failed are in here as values: a
    /// decision is made whatever could not be read, since an expiry must not wait for it.
    type Facts: Send + Sync;
    /// What has to be found out before it can be decided.
    type Question: Send;
    /// Where the object stands, as it was decided: the status is written from it.
    type State: Send + Sync;
    /// The status subresource.
    type Status: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync;

    /// Short name in lower case, such as `execaccessrequest`: the field manager is `oz/NAME`, and
    /// metrics and logs carry it as the label `controller`.
    fn name(&self) -> &'static str;

    /// Group, version, kind and plural of [`Controller::Object`]; `Default::default()` for a typed kind.
    fn dynamic_type(&self) -> <Self::Object as Resource>::DynamicType;

    /// The status that the object carries now.
    fn current_status(&self, object: &Self::Object) -> Option<Self::Status>;

    /// What to do now, and when time alone next changes the answer; or what must be found out first. Asked
    /// again with the answer, for the same instant. `live` holds the object's children that exist,
    /// whoever changed them since: what counts as drift is decided here. What is due is decided from
    /// what is known: nothing is asked before it.
    fn decide(
        &self,
        now: Timestamp,
        object: &Self::Object,
        facts: &Self::Facts,
        live: &[Live],
    ) -> Verdict<Self::Question, Decision<Self::State>>;

    /// The status after the decision's plan was carried out, as far as it went. `now` is the instant of
    /// the decision. Nothing is decided here.
    fn status(
        &self,
        now: Timestamp,
        object: &Self::Object,
        decision: &Decision<Self::State>,
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

/// What came of asking a controller to decide.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict<Q, D> {
    /// This must be found out first.
    Need {
        /// What.
        question: Q,
        /// From when on the answer is of no use, since time alone decides then.
        until: Option<Timestamp>,
    },
    /// It is decided.
    Decided(D),
}

impl<Q, D> Verdict<Q, D> {
    /// The decision; `None` if something must be found out first.
    pub fn decided(self) -> Option<D> {
        match self {
            Self::Decided(decision) => Some(decision),
            Self::Need { .. } => None,
        }
    }

    /// The question; `None` if nothing has to be found out.
    pub fn question(self) -> Option<Q> {
        match self {
            Self::Need { question, .. } => Some(question),
            Self::Decided(_) => None,
        }
    }
}

/// What was decided about one object, once in a pass: the plan, and the status that follows it, go by
/// the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision<S> {
    /// What is to be done.
    pub plan: Plan,
    /// Where the object stands, with the end that it comes to, if it does.
    pub state: S,
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
    /// End what runs of these sessions.
    EndSessions(Box<Sessions>),
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

/// What carrying out a plan led to. Status is computed from this, never from what was wished for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The children that exist now, as the API server answered.
    pub live: Vec<Live>,
    /// What stopped the plan: the first step that failed, or else the plan's own obstacle.
    pub failure: Option<Failure>,
    /// What came of ending sessions, if the plan asked for that.
    pub sessions: Option<SessionsEnded>,
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
    /// The reason of sessions that could not be ended yet.
    pub const SESSIONS_NOT_ENDED: &'static str = "SessionsNotEnded";

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
