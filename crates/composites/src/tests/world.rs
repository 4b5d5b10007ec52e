//! One composite in memory: Fleets with ConfigMaps.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{ApiResource, DynamicObject};
use oz_api::composite::{CompositeController, Method};
use oz_core::controller::{Controller, Decision, Live, Plan, Step, Verdict};
use oz_core::lifecycle::seal::Keys;
use serde_json::{Value, json};

use crate::declared::{Declared, Family, Placed};
use crate::protocol::Answer;
use crate::supervise::Mode;
use crate::{Called, Composite, Facts, Pass, Question};

pub(super) fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// Returns the time of a deletion or creation.
pub(super) fn time() -> Time {
    Time(timestamp(0))
}

pub(super) fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

pub(super) fn controller(change: impl FnOnce(&mut Value)) -> CompositeController {
    let mut value = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": {"name": "fleets", "uid": "composite"},
        "spec": {
            "parentResource": {"apiVersion": "test.example.org/v1", "resource": "fleets"},
            "childResources": [{"apiVersion": "v1", "resource": "configmaps"}],
            "generateSelector": true,
            "hooks": {"sync": {"webhook": {"url": "http://functions/sync"}}},
        },
    });
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

fn placed(api_version: &str, kind: &str, plural: &str, cluster_scoped: bool) -> Placed {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Placed {
        resource: ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        },
        cluster_scoped,
    }
}

pub(super) struct World {
    pub(super) composite: Composite,
    pub(super) parent: DynamicObject,
    pub(super) live: Vec<Live>,
    pub(super) facts: Facts,
}

impl World {
    pub(super) fn new(method: Method) -> Self {
        Self::with(method, |_| {})
    }

    pub(super) fn with(method: Method, change: impl FnOnce(&mut Value)) -> Self {
        let declared = Declared::from_composite(&controller(change)).unwrap();
        let child = placed("v1", "ConfigMap", "configmaps", false);
        Self {
            composite: Composite {
                name: "composite fleets".to_owned(),
                declared,
                family: Family {
                    parent: placed("test.example.org/v1", "Fleet", "fleets", false),
                    children: vec![(child, method)],
                },
                observes_generation: true,
                keys: Keys::with_every_owner([[7; 32]]),
                mode: Mode::Run,
                policy: None,
                bindable: None,
            },
            parent: object(json!({
                "metadata": {"name": "one", "namespace": "dev", "uid": "parent", "generation": 3},
                "spec": {},
            })),
            live: Vec::new(),
            facts: Facts {
                slowed: Some(None),
                ..Facts::default()
            },
        }
    }

    /// Sets the response of the function from now on.
    pub(super) fn answers(&mut self, answer: &Value) {
        self.answers_ahead(answer, &[]);
    }

    pub(super) fn answers_ahead(&mut self, answer: &Value, ahead: &[(Timestamp, Value)]) {
        let read = |answer: &Value| Answer::read(answer, true).unwrap();
        self.facts.called = Some(Ok(Called {
            answer: read(answer),
            ahead: ahead
                .iter()
                .map(|(at, answer)| (*at, Ok(read(answer))))
                .collect(),
            look_again: None,
            policy: None,
        }));
    }

    pub(super) fn verdict(&self, now: Timestamp) -> Verdict<Question, Decision<Pass>> {
        self.composite
            .decide(now, &self.parent, &self.facts, &self.live)
    }

    pub(super) fn decide(&self, now: Timestamp) -> Decision<Pass> {
        self.verdict(now).decided().unwrap()
    }

    pub(super) fn plan(&self, now: Timestamp) -> Plan {
        self.decide(now).plan
    }

    /// Decides and applies the steps, as an API server would. Returns the applied steps.
    pub(super) fn pass(&mut self, now: Timestamp) -> Vec<String> {
        let plan = self.plan(now);
        let steps: Vec<Step> = plan.steps().cloned().collect();
        steps.iter().map(|step| self.carry_out(step)).collect()
    }

    fn carry_out(&mut self, step: &Step) -> String {
        match step {
            Step::Apply(child) => {
                let known = self.live.iter_mut().find(|live| live.key() == child.key());
                let name = child.object.metadata.name.clone().unwrap_or_default();
                if let Some(known) = known {
                    let uid = known.object.metadata.uid.clone();
                    known.object = child.object.clone();
                    known.object.metadata.uid = uid;
                    return format!("change {name}");
                }
                let mut object = child.object.clone();
                object.metadata.uid = Some(format!("{name}-{}", self.live.len()));
                let resource = child.resource.clone();
                self.live.push(Live { resource, object });
                format!("create {name}")
            }
            Step::Delete(target) => {
                self.live
                    .retain(|live| live.object.metadata.uid != target.uid);
                format!("delete {}", target.name.as_deref().unwrap())
            }
            Step::Hold(finalizer) => {
                let finalizers = self.parent.metadata.finalizers.get_or_insert_default();
                finalizers.push(finalizer.clone());
                "hold".to_owned()
            }
            Step::Release(finalizer) => {
                let finalizers = self.parent.metadata.finalizers.get_or_insert_default();
                finalizers.retain(|known| known != finalizer);
                "release".to_owned()
            }
            Step::Adopt(target, owner) => {
                let live = self.live.iter_mut();
                for live in live.filter(|live| live.object.metadata.uid == target.uid) {
                    live.object.metadata.owner_references = Some(vec![owner.clone()]);
                }
                format!("adopt {}", target.name.as_deref().unwrap())
            }
            Step::Disown(target) => format!("disown {}", target.name.as_deref().unwrap()),
            other => format!("{other:?}"),
        }
    }

    /// Adds an object of the children's kind.
    pub(super) fn stray(&mut self, metadata: Value) {
        let resource = self.composite.family.children[0].0.resource.clone();
        let object = object(json!({"metadata": metadata, "data": {"value": "stray"}}));
        self.live.push(Live { resource, object });
    }
}

/// Returns a ConfigMap as a function returns it.
pub(super) fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}
