//! The template of a run that has not begun: it may be created soon after the run.

use jiff::{SignedDuration, Timestamp};
use oz_api::Phase;
use oz_api::harness::{HarnessRun, HarnessTemplateSpec, TemplateKind};
use oz_core::controller::Failure;
use oz_core::lifecycle::window::{after, has_come};
use oz_core::validate::Violation;

use super::facts::{Facts, Stop};
use crate::stored::StoredObject;
use crate::template::{self, Resolved, Unresolved};

/// Time for which a run waits for a template that does not exist yet.
const TEMPLATE_WAIT: SignedDuration = SignedDuration::from_secs(60);

/// Returns the template of a run; a run waits for a template that does not exist.
pub(super) fn chosen<'a>(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    facts: &'a Facts,
) -> Result<(TemplateKind, &'a HarnessTemplateSpec), Stop> {
    let own = facts.template.as_ref().map(|template| &template.spec);
    let cluster = facts
        .cluster_template
        .as_ref()
        .map(|template| &template.spec.0);
    template::chosen(&run.spec.template_ref, own, cluster).ok_or_else(|| {
        let name = &run.spec.template_ref.name;
        let message = match run.spec.template_ref.kind {
            Some(kind) => format!("{kind} {name} does not exist"),
            None => format!("there is no HarnessTemplate and no ClusterHarnessTemplate {name}"),
        };
        not_there_yet(now, run, "TemplateNotFound", message)
    })
}

/// Returns the template of a run, merged with its base and with the overrides of the run.
pub(super) fn resolved(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    facts: &Facts,
    spec: &HarnessTemplateSpec,
) -> Result<Resolved, Stop> {
    let base = facts.base.as_ref().map(|base| &base.spec.0);
    let template = template::resolve(spec, base).map_err(|error| match error {
        Unresolved::NoBase(_) => not_there_yet(now, run, "TemplateNotFound", error.to_string()),
        error => refused("TemplateInvalid", error.to_string()),
    })?;
    template
        .for_run(&run.spec)
        .map_err(|found| refused("Invalid", Violation::list(&found)))
}

/// Returns the state of a run without its template, which a user may create soon after the run.
fn not_there_yet(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    reason: &'static str,
    message: String,
) -> Stop {
    match has_come(now, waits_until(run)) {
        true => refused(
            reason,
            format!("{message}; create it and submit the run again"),
        ),
        false => {
            let message = format!("{message}; the run waits a minute for it");
            Stop::Wait(Failure::invalid(reason, message))
        }
    }
}

/// Returns the instant until which a run waits for its template.
pub(super) fn waits_until(run: &StoredObject<'_, HarnessRun>) -> Timestamp {
    after(run.identity.created, TEMPLATE_WAIT)
}

/// Creates the refusal of a run that can never begin.
pub(super) fn refused(reason: &'static str, message: impl Into<String>) -> Stop {
    Stop::Refuse(Phase::Failed, Failure::invalid(reason, message.into()))
}
