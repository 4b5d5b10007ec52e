//! The controllers of templates: they create no objects; the status of a template reports to its owners
//! whether users can use it. Both kinds share them, except for the observed target.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::conditions::{self, message, reason};
use oz_api::{ExecAccessTemplate, PodAccessTemplate, SessionProbe, TemplateStatus};

use super::status::Fact;
use crate::controller::{
    Controller, Decision, Failure, FailureClass, Live, Outcome, Plan, Transition, Verdict,
};
use crate::kinds::Kind as _;
use crate::lifecycle::window::after;
use crate::mutate::{self, Model};
use crate::validate::{self, Violation};

/// The controller of ExecAccessTemplates.
#[derive(Clone, Debug)]
pub struct ExecTemplate {
    /// Interval between lookups of the target.
    pub interval: SignedDuration,
}

/// The controller of PodAccessTemplates.
#[derive(Clone, Debug)]
pub struct PodTemplate {
    /// Interval between lookups of the target.
    pub interval: SignedDuration,
}

/// The capabilities of the containers of a template's target. A failure contains the reason why the target
/// was not found.
pub type Probed = Result<Vec<SessionProbe>, Failure>;

/// The target of a template for pods, if it has one. A failure contains the reason why it was not found.
pub type ObservedModel = Result<Option<Model>, Failure>;

/// The question about a template's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target;

/// The reason of a target that does not exist.
pub const TARGET_NOT_FOUND: &str = reason::NOT_FOUND;

impl Controller for ExecTemplate {
    type Object = ExecAccessTemplate;
    type Facts = Option<Probed>;
    type Question = Target;
    type State = Probed;
    type Status = TemplateStatus;

    fn name(&self) -> &'static str {
        ExecAccessTemplate::NAME
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &ExecAccessTemplate) -> Option<TemplateStatus> {
        object.status.clone()
    }

    fn decide(
        &self,
        now: Timestamp,
        _: &ExecAccessTemplate,
        target: &Self::Facts,
        _: &[Live],
    ) -> Verdict<Target, Decision<Probed>> {
        look_again(now, self.interval, target.as_ref())
    }

    fn status(
        &self,
        now: Timestamp,
        object: &ExecAccessTemplate,
        decision: &Decision<Probed>,
        _: &Outcome,
    ) -> TemplateStatus {
        let observed = &decision.state;
        let violations = validate::exec_access_template(object).err();
        let violations: Vec<Violation> = violations.into_iter().flatten().collect();
        let facts = [
            target(observed.as_ref().err()),
            durations(&violations),
            config(violations, None),
        ];
        let mut status = with_facts(now, &object.metadata, object.status.as_ref(), facts);
        if let Ok(probes) = observed {
            // A workload that has no pods for a while keeps the results of earlier probes.
            if !probes.is_empty() {
                status.session_probes.clone_from(probes);
            }
        }
        status
    }

    fn transitions(
        &self,
        _: &ExecAccessTemplate,
        before: Option<&TemplateStatus>,
        after: &TemplateStatus,
    ) -> Vec<Transition> {
        transitions(before, after)
    }
}

impl Controller for PodTemplate {
    type Object = PodAccessTemplate;
    type Facts = Option<ObservedModel>;
    type Question = Target;
    type State = ObservedModel;
    type Status = TemplateStatus;

    fn name(&self) -> &'static str {
        PodAccessTemplate::NAME
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &PodAccessTemplate) -> Option<TemplateStatus> {
        object.status.clone()
    }

    fn decide(
        &self,
        now: Timestamp,
        _: &PodAccessTemplate,
        target: &Self::Facts,
        _: &[Live],
    ) -> Verdict<Target, Decision<ObservedModel>> {
        look_again(now, self.interval, target.as_ref())
    }

    fn status(
        &self,
        now: Timestamp,
        object: &PodAccessTemplate,
        decision: &Decision<ObservedModel>,
        _: &Outcome,
    ) -> TemplateStatus {
        let observed = &decision.state;
        let (violations, impossible) = match (validate::pod_access_template(object), observed) {
            (Err(violations), _) => (violations, None),
            // Render a pod as a trial, so that authors learn of errors before the first request.
            (Ok(terms), Ok(model)) => {
                let error = mutate::render(&terms.target, model.as_ref()).err();
                (Vec::new(), error.map(|error| error.to_string()))
            }
            (Ok(_), Err(_)) => (Vec::new(), None),
        };
        let facts = [
            target(observed.as_ref().err()),
            durations(&violations),
            config(violations, impossible),
        ];
        with_facts(now, &object.metadata, object.status.as_ref(), facts)
    }

    fn transitions(
        &self,
        _: &PodAccessTemplate,
        before: Option<&TemplateStatus>,
        after: &TemplateStatus,
    ) -> Vec<Transition> {
        transitions(before, after)
    }
}

fn look_again<T: Clone>(
    now: Timestamp,
    interval: SignedDuration,
    target: Option<&Result<T, Failure>>,
) -> Verdict<Target, Decision<Result<T, Failure>>> {
    let Some(target) = target else {
        return Verdict::Need {
            question: Target,
            until: None,
        };
    };
    let plan = Plan::default().wake_at(after(now, interval));
    let plan = match target {
        // A target that does not exist is looked up at every interval, like an existing one.
        Err(failure) if failure.class == FailureClass::Transient => plan.because(failure.clone()),
        _ => plan,
    };
    Verdict::Decided(Decision {
        plan,
        state: target.clone(),
    })
}

fn with_facts(
    now: Timestamp,
    metadata: &ObjectMeta,
    current: Option<&TemplateStatus>,
    facts: [Fact; 3],
) -> TemplateStatus {
    let mut status = current.cloned().unwrap_or_default();
    for fact in facts {
        fact.set(&mut status.conditions, metadata.generation, now);
    }
    status.ready = conditions::all_true(&status.conditions, &conditions::OF_READY_TEMPLATE);
    status.observed_generation = metadata.generation;
    status
}

fn transitions(before: Option<&TemplateStatus>, after: &TemplateStatus) -> Vec<Transition> {
    let before = before.map_or(&[][..], |status| &status.conditions);
    after
        .conditions
        .iter()
        .filter(|now| conditions::is_news(before, now))
        .map(|now| {
            let (reason, action) = match now.type_.as_str() {
                conditions::TEMPLATE_DURATIONS_VALID => ("DurationVerified", "VerifyDuration"),
                conditions::TARGET_REF_EXISTS => ("TargetVerified", "VerifyTarget"),
                _ => ("ConfigVerified", "VerifyConfig"),
            };
            Transition {
                warning: now.status != "True",
                reason,
                action,
                note: now.message.clone(),
                due: None,
            }
        })
        .collect()
}

fn target(failure: Option<&Failure>) -> Fact {
    match failure {
        None => Fact::holds(conditions::TARGET_REF_EXISTS, message::SUCCESS),
        Some(failure) => Fact::fails(
            conditions::TARGET_REF_EXISTS,
            TARGET_NOT_FOUND,
            format!("Error: {failure}"),
        ),
    }
}

/// Reports violations of durations separately from other violations, since scripts wait for that condition by
/// its own name.
fn durations(violations: &[Violation]) -> Fact {
    match Violation::of_template_durations(violations) {
        None => Fact::holds(
            conditions::TEMPLATE_DURATIONS_VALID,
            message::TEMPLATE_DURATIONS_VALID,
        ),
        Some(invalid) => Fact::fails(
            conditions::TEMPLATE_DURATIONS_VALID,
            reason::NOT_ACCEPTABLE,
            invalid.to_string(),
        ),
    }
}

fn config(mut violations: Vec<Violation>, impossible: Option<String>) -> Fact {
    violations.retain(|violation| !violation.is_about_duration());
    let wrong = if violations.is_empty() {
        impossible
    } else {
        Some(Violation::list(&violations))
    };
    match wrong {
        None => Fact::holds(conditions::ACCESS_CONFIG_VALID, message::SUCCESS),
        Some(wrong) => Fact::fails(
            conditions::ACCESS_CONFIG_VALID,
            reason::NOT_ACCEPTABLE,
            format!("Error: {wrong}"),
        ),
    }
}

#[cfg(test)]
mod tests;
