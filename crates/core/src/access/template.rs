//! Exec templates, planned: nothing is created for them; their status tells their owners whether
//! people can use them.

use jiff::{SignedDuration, Timestamp};

use super::status::Fact;
use crate::api::{ExecAccessTemplate, TemplateStatus};
use crate::conditions::{self, message, reason};
use crate::controller::{Controller, Failure, FailureClass, Live, Outcome, Plan, Transition};
use crate::validate::{self, Violation};

/// The controller of ExecAccessTemplates.
#[derive(Clone, Debug)]
pub struct ExecTemplate {
    /// How often the target is looked up again.
    pub interval: SignedDuration,
}

/// What a template's plan needs: whether its target exists. A failure says why not.
pub type Observed = Result<(), Failure>;

/// The reason of a target that is not there.
pub const TARGET_NOT_FOUND: &str = reason::NOT_FOUND;

impl Controller for ExecTemplate {
    type Object = ExecAccessTemplate;
    type Observed = Observed;
    type Status = TemplateStatus;

    fn name(&self) -> &'static str {
        "execaccesstemplate"
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &ExecAccessTemplate) -> Option<TemplateStatus> {
        object.status.clone()
    }

    fn plan(
        &self,
        now: Timestamp,
        _: &ExecAccessTemplate,
        observed: &Observed,
        _: &[Live],
    ) -> Plan {
        let plan =
            Plan::default().wake_at(now.checked_add(self.interval).unwrap_or(Timestamp::MAX));
        match observed {
            // A target that does not exist is looked for at every interval, as one that does.
            Err(failure) if failure.class == FailureClass::Transient => {
                plan.because(failure.clone())
            }
            _ => plan,
        }
    }

    fn status(
        &self,
        now: Timestamp,
        object: &ExecAccessTemplate,
        observed: &Observed,
        _: &Outcome,
    ) -> TemplateStatus {
        let mut status = object.status.clone().unwrap_or_default();
        for fact in [target(observed), durations(object), config(object)] {
            conditions::set(
                &mut status.conditions,
                fact.type_,
                fact.holds,
                fact.reason,
                fact.message,
                object.metadata.generation,
                now,
            );
        }
        status.ready = conditions::all_true(&status.conditions, &conditions::OF_READY_TEMPLATE);
        status.observed_generation = object.metadata.generation;
        status
    }

    fn transitions(
        &self,
        _: &ExecAccessTemplate,
        before: Option<&TemplateStatus>,
        after: &TemplateStatus,
    ) -> Vec<Transition> {
        let before = before
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default();
        after
            .conditions
            .iter()
            .filter(|now| {
                conditions::find(before, &now.type_)
                    .is_none_or(|then| then.status != now.status || then.message != now.message)
            })
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
                }
            })
            .collect()
    }
}

fn target(observed: &Observed) -> Fact {
    match observed {
        Ok(()) => Fact::holds(conditions::TARGET_REF_EXISTS, message::SUCCESS),
        Err(failure) => Fact::fails(
            conditions::TARGET_REF_EXISTS,
            TARGET_NOT_FOUND,
            format!("Error: {failure}"),
        ),
    }
}

/// What is wrong with durations is told apart from what is wrong with the rest, since scripts
/// wait for it under its own name.
fn durations(object: &ExecAccessTemplate) -> Fact {
    match Violation::of_template_durations(&violations(object)) {
        None => Fact::holds(
            conditions::TEMPLATE_DURATIONS_VALID,
            message::TEMPLATE_DURATIONS_VALID,
        ),
        Some(message) => Fact::fails(
            conditions::TEMPLATE_DURATIONS_VALID,
            reason::NOT_ACCEPTABLE,
            message,
        ),
    }
}

fn config(object: &ExecAccessTemplate) -> Fact {
    let mut violations = violations(object);
    violations.retain(|violation| !violation.is_about_duration());
    if violations.is_empty() {
        return Fact::holds(conditions::ACCESS_CONFIG_VALID, message::SUCCESS);
    }
    Fact::fails(
        conditions::ACCESS_CONFIG_VALID,
        reason::NOT_ACCEPTABLE,
        format!("Error: {}", Violation::list(&violations)),
    )
}

fn violations(object: &ExecAccessTemplate) -> Vec<Violation> {
    validate::exec_access_template(object)
        .err()
        .unwrap_or_default()
}
