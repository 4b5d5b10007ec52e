//! A controller with its own kind for the engine's tests: small enough to be read in one go, and
//! yet with children, an expiry, an audit record, a status and a related kind.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test binary uses a part; the derive wants public types"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{CustomResource, ResourceExt};
use oz_api::labels;
use oz_core::controller::{
    Child, Controller, Decision, Effect, Failure, Live, Outcome, Plan, Step, Transition, Verdict,
};
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::{Feeds, Store};
use oz_trail::{Action, Record, RequestRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A box with a content that exists until an instant.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
#[kube(
    group = "test.wizardofoz.co",
    version = "v1",
    kind = "Timebox",
    namespaced,
    status = "TimeboxStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct TimeboxSpec {
    /// The end of the box, in RFC 3339; absent for none.
    pub until: Option<String>,
    /// The content of the box.
    pub content: String,
    /// Milliseconds that observing it takes.
    pub slow: Option<u64>,
    /// Makes the plan panic.
    pub defect: Option<bool>,
    /// Name of a ConfigMap, without which nothing is put into the box.
    pub needs: Option<String>,
    /// UID of another box that is to own this one.
    pub owned_by: Option<String>,
    /// Removes the box itself when it has ended.
    pub vanish: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
pub struct TimeboxStatus {
    pub phase: String,
    pub reason: Option<String>,
    pub children: usize,
    /// The response of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

impl TimeboxSpec {
    /// Returns the spec of a box with this content that never ends.
    pub fn holding(content: &str) -> Self {
        Self {
            content: content.to_owned(),
            until: None,
            slow: None,
            defect: None,
            needs: None,
            owned_by: None,
            vanish: None,
        }
    }
}

/// The controller.
#[derive(Clone, Default)]
pub(crate) struct Timeboxes {
    /// The name of the controller, if not `timebox`.
    pub(crate) name: Option<String>,
    /// The number of plans that were made.
    pub(crate) plans: Arc<AtomicUsize>,
    /// True if plans begin with an audit record.
    pub(crate) recorded: bool,
    /// True if the inner child is planned once the outer one is seen, in a pass that follows at once.
    pub(crate) in_two_passes: bool,
    /// True if the plan has an effect after the inner child is deleted, before the outer one is
    /// deleted.
    pub(crate) effects: bool,
    /// True if a box that ends is reconciled again a second later.
    pub(crate) looks_again: bool,
}

/// The label of ConfigMaps that boxes may need.
pub(crate) const NEED: &str = "test.wizardofoz.co/need";
/// The label of ConfigMaps that remove the needed object from the box of their name.
pub(crate) const TAKEN: &str = "test.wizardofoz.co/taken";
pub(crate) const KIND: &str = "Timebox";
/// The name of the port of the effects.
pub(crate) const PORT: &str = "bell";
/// The annotation on a child with the expiry of its box.
pub(crate) const UNTIL: &str = "test.wizardofoz.co/until";

pub(crate) fn outer_name(name: &str) -> String {
    format!("{name}-outer")
}

pub(crate) fn inner_name(name: &str) -> String {
    format!("{name}-inner")
}

/// Returns the outer child, which is created first and deleted last.
pub(crate) fn outer(timebox: &Timebox) -> Child {
    let mut outer = ConfigMap::default();
    outer.metadata.name = Some(outer_name(&timebox.name_any()));
    outer.metadata.namespace = timebox.namespace();
    let uid = timebox.uid().unwrap_or_default();
    labels::mark(&mut outer.metadata, KIND, &timebox.name_any(), &uid);
    outer.data = Some(BTreeMap::from([(
        "content".to_owned(),
        timebox.spec.content.clone(),
    )]));
    Child::new(&outer)
}

/// Returns the inner child, which is created when the outer one exists.
pub(crate) fn inner(timebox: &Timebox) -> Child {
    let mut inner = Secret::default();
    inner.metadata.name = Some(inner_name(&timebox.name_any()));
    inner.metadata.namespace = timebox.namespace();
    let uid = timebox.uid().unwrap_or_default();
    labels::mark(&mut inner.metadata, KIND, &timebox.name_any(), &uid);
    inner.type_ = Some("Opaque".to_owned());
    Child::new(&inner)
}

pub(crate) fn record(timebox: &Timebox) -> Record {
    let uid = timebox.uid().unwrap_or_default();
    Record {
        id: Record::id(Action::AccessGranted, &uid),
        time: Timestamp::UNIX_EPOCH,
        action: Action::AccessGranted,
        decision: oz_trail::Decision::Allow,
        reason: "Opened".to_owned(),
        message: "the box is open".to_owned(),
        user: None,
        request: RequestRef::default(),
        template: String::new(),
        template_digest: None,
        pod: None,
        until: None,
        details: BTreeMap::new(),
        repeated: None,
    }
}

fn ending_with_effect(timebox: &Timebox, live: &[Live]) -> Plan {
    let (inner, outer): (Vec<_>, Vec<_>) = live
        .iter()
        .partition(|child| child.resource.kind == "Secret");
    let delete = |children: Vec<&Live>| -> Vec<Step> {
        let references = children.into_iter().map(Live::reference);
        references.map(Step::Delete).collect()
    };
    let effect = Effect {
        port: PORT.to_owned(),
        key: timebox.uid().unwrap_or_default(),
        payload: json!({"box": timebox.name_any()}),
    };
    Plan::default()
        .then(delete(inner))
        .then([Step::Effect(effect)])
        .then(delete(outer))
}

/// The question whether the object that a box needs exists.
pub(crate) struct Needs;

impl Timeboxes {
    fn plan(&self, now: Timestamp, object: &Timebox, observed: bool, live: &[Live]) -> Plan {
        self.plans.fetch_add(1, Ordering::Relaxed);
        assert!(object.spec.defect != Some(true), "a defect in the plan");
        let until: Option<Timestamp> = object.spec.until.as_ref().and_then(|at| at.parse().ok());
        if until.is_some_and(|until| now >= until) {
            if self.effects {
                return ending_with_effect(object, live);
            }
            let mut plan = self.orphaned(now, Some(object), live);
            if self.looks_again {
                plan = plan.wake_at(now + SignedDuration::from_secs(1));
            }
            let vanish = object.spec.vanish == Some(true);
            return plan.then(vanish.then_some(Step::DeleteSelf));
        }
        let mut plan = Plan::default();
        if let Some(uid) = &object.spec.owned_by {
            plan = plan.then([Step::Own(OwnerReference {
                api_version: "test.wizardofoz.co/v1".to_owned(),
                kind: KIND.to_owned(),
                name: "owner".to_owned(),
                uid: uid.clone(),
                ..OwnerReference::default()
            })]);
        }
        if let Some(until) = until {
            plan = plan.wake_at(until);
        }
        if !observed {
            return plan.because(Failure::invalid("Missing", "what it needs is not there"));
        }
        if self.recorded {
            plan = plan.then([Step::Record(record(object))]);
        }
        let plan = plan.then([Step::Apply(outer(object))]);
        if self.in_two_passes && live.is_empty() {
            return plan.again();
        }
        plan.then([Step::Apply(inner(object))])
    }
}

impl Controller for Timeboxes {
    type Object = Timebox;
    /// The existence of the object that the box needs; `None` before the question was asked.
    type Facts = Option<bool>;
    type Question = Needs;
    type State = ();
    type Status = TimeboxStatus;

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("timebox")
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &Timebox) -> Option<TimeboxStatus> {
        object.status.clone()
    }

    fn decide(
        &self,
        now: Timestamp,
        object: &Timebox,
        needs: &Option<bool>,
        live: &[Live],
    ) -> Verdict<Needs, Decision<()>> {
        let until: Option<Timestamp> = object.spec.until.as_ref().and_then(|at| at.parse().ok());
        let is_over = until.is_some_and(|until| now >= until);
        let (None, false) = (needs, is_over) else {
            let plan = self.plan(now, object, *needs == Some(true), live);
            return Verdict::Decided(Decision { plan, state: () });
        };
        Verdict::Need {
            question: Needs,
            until,
        }
    }

    fn status(
        &self,
        now: Timestamp,
        object: &Timebox,
        _: &Decision<()>,
        outcome: &Outcome,
    ) -> TimeboxStatus {
        let until: Option<Timestamp> = object.spec.until.as_ref().and_then(|at| at.parse().ok());
        let phase = match (&outcome.failure, outcome.live.len()) {
            (Some(_), _) => "Failed",
            (None, 0) if until.is_some_and(|until| now >= until) => "Expired",
            (None, _) => "Open",
        };
        TimeboxStatus {
            phase: phase.to_owned(),
            reason: outcome
                .failure
                .as_ref()
                .map(|failure| failure.reason.to_owned()),
            children: outcome.live.len(),
            answer: outcome
                .answers
                .get(PORT, object.metadata.uid.as_deref().unwrap_or_default())
                .and_then(|answer| answer.as_str().map(ToOwned::to_owned)),
        }
    }

    /// Deletes the children in the reverse order of their creation, one after the other.
    fn orphaned(&self, _: Timestamp, _: Option<&Timebox>, live: &[Live]) -> Plan {
        live.iter().rev().fold(Plan::default(), |plan, child| {
            plan.then([Step::Delete(child.reference())])
        })
    }

    fn lasts_until(&self, object: Option<&Timebox>, live: &[Live]) -> Option<Timestamp> {
        let told = live.iter().find_map(|child| {
            let annotations = child.object.metadata.annotations.as_ref()?;
            annotations.get(UNTIL)
        });
        let known = told.or_else(|| object?.spec.until.as_ref());
        known.and_then(|until| until.parse().ok())
    }

    fn transitions(
        &self,
        _: &Timebox,
        before: Option<&TimeboxStatus>,
        after: &TimeboxStatus,
    ) -> Vec<Transition> {
        if before.is_some_and(|before| before.phase == after.phase) {
            return Vec::new();
        }
        vec![Transition {
            warning: after.phase == "Failed",
            reason: "PhaseChanged",
            action: "Reconcile",
            note: format!("the box is now {}", after.phase),
            due: None,
        }]
    }
}

/// The edge of the controller.
pub(crate) struct ObserveTimeboxes {
    pub(crate) timeboxes: Store<Timebox>,
    pub(crate) needs: Store<ConfigMap>,
    pub(crate) taken: Store<ConfigMap>,
}

impl ObserveTimeboxes {
    pub(crate) fn new(feeds: &Feeds) -> Self {
        Self {
            timeboxes: feeds.store(),
            needs: feeds.store_with(oz_runtime::Selection::default().labels(NEED)),
            taken: feeds.store_with(oz_runtime::Selection::default().labels(TAKEN)),
        }
    }
}

impl Observe<Timeboxes> for ObserveTimeboxes {
    fn watches(&self) -> Watches<Timebox> {
        Watches::new(&self.timeboxes)
            .child::<ConfigMap>()
            .child::<Secret>()
            .related(&self.needs, |need, timeboxes| {
                timeboxes.select(|timebox| {
                    timebox.spec.needs.as_ref() == need.metadata.name.as_ref()
                        && timebox.metadata.namespace == need.metadata.namespace
                })
            })
            .ended_by(&self.taken, |taken, timeboxes| {
                let (namespace, name) = (taken.namespace(), taken.name_any());
                timeboxes
                    .get(namespace.as_deref(), &name)
                    .into_iter()
                    .collect()
            })
    }

    fn facts(&self, object: &Timebox) -> Option<bool> {
        let namespace = object.namespace();
        let taken = self.taken.get(namespace.as_deref(), &object.name_any());
        taken.map(|_| false)
    }

    async fn answer(&self, _: &Cx, object: &Timebox, _: Needs, needs: &mut Option<bool>) {
        if let Some(milliseconds) = object.spec.slow {
            tokio::time::sleep(std::time::Duration::from_millis(milliseconds)).await;
        }
        *needs = Some(match &object.spec.needs {
            Some(name) => {
                let namespace = object.metadata.namespace.as_deref();
                self.needs.get(namespace, name).is_some()
            }
            None => true,
        });
    }
}
