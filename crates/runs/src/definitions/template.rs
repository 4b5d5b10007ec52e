//! The conditions of templates, including the template from which they inherit.

use std::convert::Infallible;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::harness::{
    ClusterHarnessTemplate, HarnessTemplate, HarnessTemplateSpec, HarnessTemplateStatus,
    TemplateKind,
};
use oz_core::controller::{Controller, Decision, Live, Outcome, Plan, Transition, Verdict};
use oz_core::validate::{Violation, joined_approval};

use super::ready::{self, Unusable, listed, reason};
use crate::admission;
use crate::template::{Unresolved, merged, resolve};

const OVERLAY: &str = "spec.podTemplateOverlay";

/// The controller of ClusterHarnessTemplates.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterTemplates;

/// The controller of HarnessTemplates. Its only fact is the cluster template from which one inherits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Templates;

impl Controller for ClusterTemplates {
    type Object = ClusterHarnessTemplate;
    type Facts = ();
    type Question = Infallible;
    type State = Result<(), Unusable>;
    type Status = HarnessTemplateStatus;

    fn name(&self) -> &'static str {
        "clusterharnesstemplate"
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &ClusterHarnessTemplate) -> Option<HarnessTemplateStatus> {
        object.status.clone()
    }

    fn decide(
        &self,
        _: Timestamp,
        object: &ClusterHarnessTemplate,
        (): &(),
        _: &[Live],
    ) -> Verdict<Infallible, Decision<Self::State>> {
        let kind = TemplateKind::ClusterHarnessTemplate;
        decided(usable(kind, &object.spec.0, None))
    }

    fn status(
        &self,
        now: Timestamp,
        object: &ClusterHarnessTemplate,
        decision: &Decision<Self::State>,
        _: &Outcome,
    ) -> HarnessTemplateStatus {
        let current = object.status.as_ref();
        status(now, &object.metadata, &object.spec.0, current, decision)
    }

    fn transitions(
        &self,
        _: &ClusterHarnessTemplate,
        before: Option<&HarnessTemplateStatus>,
        after: &HarnessTemplateStatus,
    ) -> Vec<Transition> {
        transitions(before, after)
    }
}

impl Controller for Templates {
    type Object = HarnessTemplate;
    type Facts = Option<Arc<ClusterHarnessTemplate>>;
    type Question = Infallible;
    type State = Result<(), Unusable>;
    type Status = HarnessTemplateStatus;

    fn name(&self) -> &'static str {
        "harnesstemplate"
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &HarnessTemplate) -> Option<HarnessTemplateStatus> {
        object.status.clone()
    }

    fn decide(
        &self,
        _: Timestamp,
        object: &HarnessTemplate,
        base: &Self::Facts,
        _: &[Live],
    ) -> Verdict<Infallible, Decision<Self::State>> {
        let base = base.as_ref().map(|base| &base.spec.0);
        decided(usable(TemplateKind::HarnessTemplate, &object.spec, base))
    }

    fn status(
        &self,
        now: Timestamp,
        object: &HarnessTemplate,
        decision: &Decision<Self::State>,
        _: &Outcome,
    ) -> HarnessTemplateStatus {
        let current = object.status.as_ref();
        status(now, &object.metadata, &object.spec, current, decision)
    }

    fn transitions(
        &self,
        _: &HarnessTemplate,
        before: Option<&HarnessTemplateStatus>,
        after: &HarnessTemplateStatus,
    ) -> Vec<Transition> {
        transitions(before, after)
    }
}

/// Returns the decision for a state. No decision about a template depends on time.
fn decided(state: Result<(), Unusable>) -> Verdict<Infallible, Decision<Result<(), Unusable>>> {
    Verdict::Decided(Decision {
        plan: Plan::default(),
        state,
    })
}

/// Checks whether runs can use a template; `base` is the template that it names, if that exists.
fn usable(
    kind: TemplateKind,
    spec: &HarnessTemplateSpec,
    base: Option<&HarnessTemplateSpec>,
) -> Result<(), Unusable> {
    let own = admission::template(kind, spec);
    if let Some(unusable) = Unusable::by(reason_of(&own), &own) {
        return Err(unusable);
    }
    let said = |reason, error: Unresolved| Unusable {
        reason,
        message: error.to_string(),
    };
    match (resolve(spec, base), base, &spec.base_template_ref) {
        (Err(error @ Unresolved::NoBase(_)), ..) => Err(said(reason::BASE_NOT_FOUND, error)),
        (Err(error @ Unresolved::Chain(_)), ..) => Err(said(reason::BASE_INVALID, error)),
        (_, Some(base), Some(reference)) => together(spec, &reference.name, base),
        (Err(Unresolved::Invalid(found)), ..) => {
            Unusable::by(reason::INVALID, &found).map_or(Ok(()), Err)
        }
        (Ok(_), ..) => Ok(()),
    }
}

fn reason_of(violations: &[Violation]) -> &'static str {
    let is_in_overlay = |found: &Violation| found.field.starts_with(OVERLAY);
    match violations.iter().all(is_in_overlay) {
        true => reason::OVERLAY_INVALID,
        false => reason::INVALID,
    }
}

/// Checks whether runs can use a template that is valid like its base: a value that replaces one of the base may be
/// invalid there. Approval rules of both are checked separately: together, those of the base have other names.
fn together(
    spec: &HarnessTemplateSpec,
    name: &str,
    base: &HarnessTemplateSpec,
) -> Result<(), Unusable> {
    let of_base = admission::template(TemplateKind::ClusterHarnessTemplate, base);
    let mut all = merged(spec, base);
    let approval = match (&spec.approval, &base.approval) {
        (Some(_), Some(of_base)) => all.approval.replace(of_base.clone()),
        _ => None,
    };
    let mut both = admission::template(TemplateKind::HarnessTemplate, &all);
    let approval = approval.iter();
    both.extend(approval.flat_map(|config| joined_approval("spec.approval", config)));
    let (theirs, ours): (Vec<Violation>, Vec<Violation>) = both
        .into_iter()
        .partition(|violation| of_base.contains(violation));
    if !theirs.is_empty() {
        return Err(Unusable {
            reason: reason::BASE_INVALID,
            message: format!(
                "correct ClusterHarnessTemplate {name}, from which this template inherits: {}",
                listed(&theirs)
            ),
        });
    }
    if ours.is_empty() {
        return Ok(());
    }
    Err(Unusable {
        reason: reason::INVALID,
        message: format!(
            "with the fields of ClusterHarnessTemplate {name}: {}",
            listed(&ours)
        ),
    })
}

fn status(
    now: Timestamp,
    metadata: &ObjectMeta,
    spec: &HarnessTemplateSpec,
    current: Option<&HarnessTemplateStatus>,
    decision: &Decision<Result<(), Unusable>>,
) -> HarnessTemplateStatus {
    let mut status = current.cloned().unwrap_or_default();
    let usable = match &spec.base_template_ref {
        None => "the template is valid".to_owned(),
        Some(base) => format!(
            "the template is valid, as ClusterHarnessTemplate {} with its own fields",
            base.name
        ),
    };
    let (conditions, generation) = (&mut status.conditions, metadata.generation);
    ready::set(conditions, &decision.state, usable, generation, now);
    status.observed_generation = generation;
    status
}

fn transitions(
    before: Option<&HarnessTemplateStatus>,
    after: &HarnessTemplateStatus,
) -> Vec<Transition> {
    let before = before.map(|status| status.conditions.as_slice());
    let names = ["TemplateReady", "TemplateNotReady"];
    let ready = ready::transition(before, &after.conditions, names, "VerifyTemplate");
    ready.into_iter().collect()
}
