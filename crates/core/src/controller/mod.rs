//! The interface between decisions and their execution: a [`Controller`] is a pure function of the existing
//! objects and of the time. Nothing here or behind these traits' methods reads a clock, a client, randomness
//! or the environment; the engine does, and passes in the results.
//! See docs/adr/0001-controllers-are-pure-functions.md.

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

pub use difference::{contains, contains_unless, has_content, has_metadata, merge_patch};
pub use failure::{Failure, FailureClass};
pub use objects::{Child, Key, Live, Reference};
pub use plan::{Answers, Effect, Plan, Sought, Step, Which};

/// The decisions about the desired objects for one kind of object, and about its status.
///
/// [`decide`](Controller::decide) is deterministic and idempotent: called again with the results of a plan,
/// it returns no further steps.
pub trait Controller: Send + Sync + 'static {
    /// The reconciled kind.
    type Object: Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// The observed data in addition to the object and its children. Failed reads are included as values: the
    /// controller decides regardless of failed reads, since an expiry must not wait for them.
    type Facts: Send + Sync;
    /// The data that must be read before a decision.
    type Question: Send;
    /// The decided state of the object, from which the status is written.
    type State: Send + Sync;
    /// The status subresource.
    type Status: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync;

    /// Returns the short name in lower case, such as `execaccessrequest`, unique in one engine. Unless it is
    /// set up otherwise the field manager is `oz/NAME`, and metrics carry it as the label `controller`.
    fn name(&self) -> &str;

    /// Returns group, version, kind and plural of [`Controller::Object`]; `Default::default()` for a typed
    /// kind.
    fn dynamic_type(&self) -> <Self::Object as Resource>::DynamicType;

    /// Returns the status that the object has now.
    fn current_status(&self, object: &Self::Object) -> Option<Self::Status>;

    /// Decides the steps for this instant, and the next instant at which time alone changes the decision; or
    /// returns the data that must be read first. The engine then calls it again with that data, for the same
    /// instant. `live` holds the object's existing children, including those that other users changed: the
    /// controller decides which changes are drift. It decides due steps from known data: no read delays them.
    fn decide(
        &self,
        now: Timestamp,
        object: &Self::Object,
        facts: &Self::Facts,
        live: &[Live],
    ) -> Verdict<Self::Question, Decision<Self::State>>;

    /// Returns the status after the decision's plan was carried out, as far as that succeeded. `now` is the
    /// instant of the decision. The function makes no decisions.
    fn status(
        &self,
        now: Timestamp,
        object: &Self::Object,
        decision: &Decision<Self::State>,
        outcome: &Outcome,
    ) -> Self::Status;

    /// Plans the steps for children of a deleted object, which may have been deleted while the engine was
    /// down. `object` is its last state, if this process observed the deletion. By default each child is
    /// deleted, the last created first.
    fn orphaned(&self, now: Timestamp, object: Option<&Self::Object>, live: &[Live]) -> Plan {
        let _ = (now, object);
        Plan::default().then(
            live.iter()
                .rev()
                .map(|child| Step::Delete(child.reference())),
        )
    }

    /// Returns the selector of objects without a controller that are treated as children of this one, so that
    /// they can be adopted. By default these are only the objects that name it in
    /// [`oz_api::labels::CONTROLLER_UID`]. The engine calls it only for controllers that identify children by
    /// their controller reference.
    fn selects(&self, object: &Self::Object) -> Option<Selector> {
        let _ = object;
        None
    }

    /// Returns the flow of an object, by which many objects take turns when they wait for their first pass or
    /// for a pass after a change: the objects of one flow wait for each other, and one of each flow begins in
    /// turn. The flow of a request is its requester. By default all objects are in one flow.
    fn flow(&self, object: &Self::Object) -> String {
        let _ = object;
        String::new()
    }

    /// Checks whether the plan for the object follows from it and its children: access was granted, or has
    /// ended. Such an object does not wait for lists of other kinds, which may never be complete.
    fn is_decided(&self, object: &Self::Object, live: &[Live]) -> bool {
        let _ = (object, live);
        false
    }

    /// Returns the instant until which the grant lasts, as far as the object, if it can be read, and its
    /// children show it. The engine ends access at this instant although lists are missing that have the
    /// complete data; before that, it does nothing without them.
    fn lasts_until(&self, object: Option<&Self::Object>, live: &[Live]) -> Option<Timestamp> {
        let _ = (object, live);
        None
    }

    /// Returns the event to publish on the object when a pass fails and the pass before did not. By default
    /// none: an object that has a status reports the failure there.
    fn failed(&self, object: &Self::Object, failure: &Failure) -> Option<Transition> {
        let _ = (object, failure);
        None
    }

    /// Returns the events to publish on the object for the change from one status to the next.
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

/// The result of [`Controller::decide`].
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict<Q, D> {
    /// Data must be read first.
    Need {
        /// The missing data.
        question: Q,
        /// The instant from which the answer is irrelevant, since time alone decides then.
        until: Option<Timestamp>,
    },
    /// The decision.
    Decided(D),
}

impl<Q, D> Verdict<Q, D> {
    /// Returns the decision; `None` if data must be read first.
    pub fn decided(self) -> Option<D> {
        match self {
            Self::Decided(decision) => Some(decision),
            Self::Need { .. } => None,
        }
    }

    /// Returns the question; `None` if no data is missing.
    pub fn question(self) -> Option<Q> {
        match self {
            Self::Need { question, .. } => Some(question),
            Self::Decided(_) => None,
        }
    }
}

/// The decision about one object, made once in a pass: the plan, and the subsequent status, follow the same
/// decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision<S> {
    /// The plan to carry out.
    pub plan: Plan,
    /// The state of the object, with its end, if it ends.
    pub state: S,
}

/// The result of a plan. Status is computed from this, never from the desired objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The children that exist now, according to the API server's responses.
    pub live: Vec<Live>,
    /// The failure that stopped the plan: that of the first failed step, or else the plan's own obstacle.
    pub failure: Option<Failure>,
    /// The responses of the ports to the plan's effects.
    pub answers: Answers,
}

/// An event for `kubectl describe`, published once for one change of status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Transition {
    /// True for an event of type `Warning`.
    pub warning: bool,
    /// Reason in CamelCase, such as `AccessGranted`.
    pub reason: &'static str,
    /// Action in CamelCase, such as `Grant`.
    pub action: &'static str,
    /// A sentence for users.
    pub note: String,
    /// The instant at which this was due, if there was one: the engine measures the delay.
    pub due: Option<Timestamp>,
}
