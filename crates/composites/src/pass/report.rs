//! Reporting: the status of a parent, and the report of the changes that a pass does not make.

use std::collections::BTreeSet;

use kube::core::DynamicObject;
use oz_api::labels;
use oz_core::controller::{Decision, Failure, Plan, Step, Verdict};
use serde_json::{Map, Value, json};

use super::composite::Composite;
use super::facts::{Parent, Question};
use crate::function::Called;
use crate::guard::Report;
use crate::mode::Mode;

/// The result of a pass, for the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pass {
    /// The status that the function returned; `None` if the parent's status does not change.
    pub status: Option<Map<String, Value>>,
}

impl Pass {
    pub(super) fn from_response(called: &Called) -> Self {
        let status = Some(called.answer.status.clone().unwrap_or_default());
        Self { status }
    }
}

/// Returns a decision that does not change the status.
pub(super) fn decided(plan: Plan) -> Verdict<Question, Decision<Pass>> {
    let state = Pass::default();
    Verdict::Decided(Decision { plan, state })
}

/// Returns a plan without its steps, except reports.
pub(super) fn reports_only(mut plan: Plan) -> Plan {
    for stage in &mut plan.stages {
        stage.retain(|step| matches!(step, Step::Effect(_)));
    }
    plan.stages.retain(|stage| !stage.is_empty());
    plan
}

impl Composite {
    /// Returns the status of a parent that a response requires.
    #[must_use]
    pub fn required_status(&self, object: &DynamicObject, called: &Called) -> Value {
        self.status_of(object, &Pass::from_response(called))
    }

    /// Returns the next status of a parent.
    pub(super) fn status_of(&self, object: &DynamicObject, pass: &Pass) -> Value {
        let Some(mut status) = pass.status.clone() else {
            return object.data.get("status").cloned().unwrap_or_default();
        };
        if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
            newest_of_each_type(conditions);
        }
        if self.observes_generation
            && let Some(generation) = object.metadata.generation
        {
            status.insert("observedGeneration".to_owned(), json!(generation));
        }
        Value::Object(status)
    }

    /// Returns the report about a parent, without changes.
    pub(super) fn report(&self, parent: &Parent<'_>) -> Report {
        let metadata = &parent.owner.object.metadata;
        let namespace = metadata.namespace.iter();
        let names = namespace.chain(&metadata.name).map(String::as_str);
        Report {
            composite: self.declared.uid.clone(),
            parent: names.collect::<Vec<_>>().join("/"),
            seen: self.seen(parent),
            ..Report::default()
        }
    }

    /// Returns the UIDs of a parent's children, which only the guard of deletions requires.
    fn seen(&self, parent: &Parent<'_>) -> BTreeSet<String> {
        if self.mode != Mode::Guard {
            return BTreeSet::new();
        }
        let metadata = parent.live.iter().map(|child| &child.object.metadata);
        let own = metadata.filter(|metadata| {
            let controller = labels::controller(metadata);
            controller.is_some_and(|controller| parent.owner.uid == *controller.uid)
        });
        own.filter_map(|metadata| metadata.uid.clone()).collect()
    }

    /// Returns the plan for a parent without a response of the function, with this number of children.
    pub(super) fn unanswered(
        &self,
        parent: &Parent<'_>,
        children: usize,
        failure: Failure,
    ) -> Plan {
        let report = || Report {
            doubtful: children,
            ..self.report(parent)
        };
        let withholds = matches!(self.mode, Mode::Guard | Mode::DryRun);
        let report = withholds.then(|| report().step(parent.owner.uid.as_str()));
        Plan::default().because(failure).then(report)
    }
}

/// Removes conditions with a type that occurs again: the newest condition of each type remains.
fn newest_of_each_type(conditions: &mut Vec<Value>) {
    let mut seen = BTreeSet::new();
    conditions.retain(
        |condition| match condition.get("type").and_then(Value::as_str) {
            Some(type_) => seen.insert(type_.to_owned()),
            None => true,
        },
    );
}
