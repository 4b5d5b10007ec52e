//! The seam between deciding and doing: a [`Controller`] is a pure function of what exists and
//! what time it is. Nothing here or behind these traits' methods reads a clock, a client,
//! randomness or the environment; the engine does, and hands in what it found.

mod difference;
mod failure;
mod objects;
mod plan;

use std::fmt::Debug;
use std::hash::Hash;

use jiff::Timestamp;
use kube::Resource;
use kube::core::Selector;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use difference::{contains, has_content, has_metadata, merge_patch};
pub use failure::{Failure, FailureClass};
pub use objects::{Child, Key, Live, Reference};
pub use plan::{Answers, Effect, Plan, Sought, Step, Which};

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

    /// Short name in lower case, such as `execaccessrequest`, and no other's in one engine. Unless it is
    /// set up otherwise the field manager is `oz/NAME`, and metrics carry it as the label `controller`.
    fn name(&self) -> &str;

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

    /// Which objects that nobody controls are looked at as children of this one, so that they can be
    /// adopted. None but those that say by [`oz_api::labels::CONTROLLER_UID`] that they are, unless this
    /// says more. Asked only where children are known by their controller reference.
    fn selects(&self, object: &Self::Object) -> Option<Selector> {
        let _ = object;
        None
    }

    /// With which others an object takes turns when many wait to be looked at for the first time or because
    /// something changed: those of one flow wait for each other, and one of each flow begins in turn. For what
    /// people ask for it is who asked. By default all are one flow.
    fn flow(&self, object: &Self::Object) -> String {
        let _ = object;
        String::new()
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

    /// The event to publish on the object when a pass fails that did not fail before. None by default: what
    /// has a status of its own tells there.
    fn failed(&self, object: &Self::Object, failure: &Failure) -> Option<Transition> {
        let _ = (object, failure);
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
