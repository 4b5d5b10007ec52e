//! What is to be done, and what ports answered to it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::ApiResource;
use oz_trail::Record;
use serde::Serialize;
use serde_json::Value;

use super::failure::Failure;
use super::objects::{Child, Live, Reference};

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
    /// Whether another pass follows at once, if this one succeeds: it sees what this one wrote.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
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

    /// Whether all that it does is to take away and to tell of it.
    #[must_use]
    pub fn only_takes(&self) -> bool {
        self.steps().all(|step| {
            matches!(
                step,
                Step::Delete(_) | Step::Disown(_) | Step::Look(_) | Step::Record(_)
            )
        })
    }

    /// Has another pass follow at once, which sees what this plan brought about.
    #[must_use]
    pub fn again(mut self) -> Self {
        self.again = true;
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
    /// the same name is a [`FailureClass::Conflict`](super::FailureClass::Conflict), never taken over.
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
    Own(OwnerReference),
    /// Put this finalizer of ours on the reconciled object: it stays until it is taken off again.
    Hold(String),
    /// Take this finalizer of ours off the reconciled object: nothing that it stood for is left.
    Release(String),
    /// Make this very object a child, which nobody controls: add the controller's reference.
    Adopt(Reference, OwnerReference),
    /// Let go of this very object: take the reference to the reconciled object off it.
    Disown(Reference),
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
    /// Whether what a watch shows is enough, which may be behind by moments, if there is one.
    pub watched: bool,
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
            watched: false,
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
