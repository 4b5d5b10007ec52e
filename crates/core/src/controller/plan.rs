//! The steps of a pass, and the responses of ports to them.

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

/// The steps of a pass, as a value that can be printed instead of carried out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// Stages, carried out one after the other; the steps of one stage run side by side. A step
    /// that fails ends the plan after its stage.
    pub stages: Vec<Vec<Step>>,
    /// The next instant at which time alone changes the plan. The pass after it is never later than this,
    /// also after failures.
    pub wake: Option<Timestamp>,
    /// The reason why the plan is incomplete: data was missing or could not be read. A transient obstacle is
    /// retried with backoff.
    pub obstacle: Option<Failure>,
    /// Whether another pass follows at once, if this one succeeds: it reads the objects that this one wrote.
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

    /// Sets the instant of the next pass for the object; the earliest one applies.
    #[must_use]
    pub fn wake_at(mut self, at: Timestamp) -> Self {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
        self
    }

    /// Checks whether all steps of the plan only remove access and record that.
    #[must_use]
    pub fn only_takes(&self) -> bool {
        self.steps().all(|step| {
            matches!(
                step,
                Step::Delete(_) | Step::Disown(_) | Step::Look(_) | Step::Record(_)
            )
        })
    }

    /// Requests another pass at once, which reads the results of this plan.
    #[must_use]
    pub fn again(mut self) -> Self {
        self.again = true;
        self
    }

    /// Sets the reason why the plan is incomplete.
    #[must_use]
    pub fn because(mut self, obstacle: Failure) -> Self {
        self.obstacle = Some(obstacle);
        self
    }

    /// Returns every step, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.stages.iter().flatten()
    }
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Step {
    /// Store this audit record durably; the following stages are carried out only if that succeeded.
    Record(Record),
    /// Create the child, or bring the fields that it names to these values. A foreign object of
    /// the same name is a [`FailureClass::Conflict`](super::FailureClass::Conflict), never taken over.
    Apply(Child),
    /// Check whether this object exists, regardless of its labels: the engine identifies children by labels,
    /// which other users can remove. If it exists, and the plan did not include it, another plan is made that
    /// does.
    Look(Sought),
    /// Call a port with this effect, outside of Kubernetes.
    Effect(Effect),
    /// Delete this object (its UID is a precondition). An absent object is a success.
    Delete(Reference),
    /// Set the object's owner references, keeping those it has. For objects that were created
    /// before their owner.
    Own(OwnerReference),
    /// Add this finalizer of oz to the reconciled object: it stays until oz removes it.
    Hold(String),
    /// Remove this finalizer of oz from the reconciled object: the objects that it protected are gone.
    Release(String),
    /// Make this object, which has no controller, a child: add the controller's reference.
    Adopt(Reference, OwnerReference),
    /// Release this object: remove the reference to the reconciled object from it.
    Disown(Reference),
    /// Delete the reconciled object itself.
    DeleteSelf,
}

/// A query to the API server itself, for objects that may lack the labels of children.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sought {
    /// Kind of the objects.
    pub resource: ApiResource,
    /// Namespace of the objects; `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Selection of the objects.
    pub which: Which,
    /// Whether a watch, if there is one, is sufficient, although it may be behind by moments.
    pub watched: bool,
}

/// The selected objects of a kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Which {
    /// The object with this name.
    Name(String),
    /// All objects that have this value in this field, such as `roleRef`. The controller's watch already
    /// shows the objects with the mark of its children.
    Having(&'static str, Value),
}

impl Sought {
    /// Checks whether the query selects this object.
    #[must_use]
    pub fn is(&self, live: &Live) -> bool {
        let key = live.key();
        let here = key.kind == self.resource.kind
            && key.group == self.resource.group
            && key.namespace == self.namespace;
        here && match &self.which {
            Which::Name(name) => key.name.as_ref() == Some(name),
            Which::Having(field, value) => live.object.data.get(field) == Some(value),
        }
    }

    /// Creates a query for the object of kind `K` with this name.
    pub fn with_name<K>(namespace: Option<&str>, name: impl Into<String>) -> Self
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

/// A call to a port: an action outside of Kubernetes. An audit record that must precede it is a
/// [`Step::Record`] of an earlier stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Name of the port, such as `sessions`.
    pub port: String,
    /// Key that distinguishes it from other effects of this port: carried out again under the same key, by
    /// this process or the next one, it has no further effect.
    pub key: String,
    /// Request to the port, in the port's own format.
    pub payload: Value,
}

/// The responses of ports, by port and key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers(BTreeMap<String, BTreeMap<String, Value>>);

impl Answers {
    /// Adds the answer of a port.
    pub fn insert(&mut self, effect: &Effect, answer: Value) {
        let of_port = self.0.entry(effect.port.clone()).or_default();
        of_port.insert(effect.key.clone(), answer);
    }

    /// Returns the answer of a port to the effect with this key.
    #[must_use]
    pub fn get(&self, port: &str, key: &str) -> Option<&Value> {
        self.0.get(port)?.get(key)
    }

    /// Returns all responses of a port, by key.
    pub fn of_port(&self, port: &str) -> impl Iterator<Item = (&str, &Value)> {
        let answers = self.0.get(port).into_iter().flatten();
        answers.map(|(key, answer)| (key.as_str(), answer))
    }
}
