//! The template of a run that has not begun: it may be created soon after the run.

use std::cell::OnceCell;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::Phase;
use oz_api::harness::{ClusterHarnessTemplate, HarnessRun, HarnessTemplateSpec, TemplateKind};
use oz_core::access::denial::Denial;
use oz_core::access::policy::{self, Judgement};
use oz_core::controller::Failure;
use oz_core::lifecycle::window::{after, has_come};
use oz_core::validate::Violation;

use super::facts::{Facts, Stop};
use crate::stored::StoredObject;
use crate::template::{self, Resolved, Unresolved};

/// Time for which a run waits for a template that does not exist yet.
const TEMPLATE_WAIT: SignedDuration = SignedDuration::from_secs(60);

/// The template that a run names.
pub(super) struct Chosen<'a> {
    pub(super) kind: TemplateKind,
    metadata: &'a ObjectMeta,
    spec: &'a HarnessTemplateSpec,
    /// The template from which it inherits, if it names one that exists.
    base: Option<&'a HarnessTemplateSpec>,
    /// The digest of both, once a rule or the offer read it.
    digest: OnceCell<String>,
}

impl Chosen<'_> {
    /// Returns the digest of the template and its base.
    pub(super) fn digest(&self) -> &str {
        self.digest
            .get_or_init(|| template::digest(self.spec, self.base))
    }

    /// Checks whether the access policies were evaluated for this template and its base.
    ///
    /// # Errors
    /// The denial.
    pub(super) fn is_judged(&self, judgement: Option<&Judgement>) -> Result<(), Denial> {
        let seen = || policy::seen_as(self.metadata, self.digest());
        policy::same_template(judgement, self.metadata, seen)
    }
}

/// Returns the template of a run; a run waits for a template that does not exist, or is being deleted.
pub(super) fn chosen<'a>(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    facts: &'a Facts,
) -> Result<Chosen<'a>, Stop> {
    let own = facts.template.as_deref();
    let own = own.filter(|template| template::is_available(&template.metadata));
    let own = own.map(|template| (&template.metadata, &template.spec));
    let cluster = available(facts.cluster_template.as_deref());
    let found = template::chosen(&run.spec.template_ref, own, cluster);
    let (kind, (metadata, spec)) = found.ok_or_else(|| {
        let name = &run.spec.template_ref.name;
        let message = match run.spec.template_ref.kind {
            Some(kind) => format!("{kind} {name} does not exist"),
            None => format!("there is no HarnessTemplate and no ClusterHarnessTemplate {name}"),
        };
        not_there_yet(now, run, "TemplateNotFound", message)
    })?;
    // The base in the facts is that of the HarnessTemplate with the name, also if the run names the other kind.
    let base = available(facts.base.as_deref()).map(|(_, base)| base);
    let base = base.filter(|_| spec.base_template_ref.is_some());
    Ok(Chosen {
        kind,
        metadata,
        spec,
        base,
        digest: OnceCell::new(),
    })
}

/// Returns the metadata and the spec of a cluster template that exists.
fn available(
    template: Option<&ClusterHarnessTemplate>,
) -> Option<(&ObjectMeta, &HarnessTemplateSpec)> {
    let template = template.filter(|template| template::is_available(&template.metadata));
    template.map(|template| (&template.metadata, &template.spec.0))
}

/// Returns the template of a run, merged with its base and with the overrides of the run.
pub(super) fn resolved(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    chosen: &Chosen<'_>,
) -> Result<Resolved, Stop> {
    let template = template::resolve(chosen.spec, chosen.base).map_err(|error| match error {
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
