//! What the spec and the status of a run say, without any other object.

use oz_api::harness::{HarnessRun, RunPhase};
use oz_api::{AccessLock, Phase, Requester, encode};
use oz_core::access::approval::Candidate;
use oz_core::access::denial::Denial;
use oz_core::access::lock::{self, Access};
use oz_core::access::policy::{self, Judgement};
use oz_core::access::stamp;
use oz_core::lifecycle::seal::Keys;

use crate::objects::KIND;
use crate::pod::Prompt;
use crate::stored::StoredObject;
use crate::terms;

/// Returns the access of a run in this namespace, as locks select it.
pub(super) fn access<'a>(
    submitter: &'a Requester,
    namespace: Option<&'a str>,
    run: &'a HarnessRun,
) -> Access<'a> {
    let access = Access::run(submitter, namespace, &run.spec.template_ref.name);
    access.in_emergency(run.spec.is_emergency())
}

/// Checks whether a change of this lock affects a run. A run with an unknown submitter is affected.
#[must_use]
pub fn is_concerned_by(run: &HarnessRun, lock: &AccessLock, keys: &Keys) -> bool {
    if is_over(run) {
        return false;
    }
    let submitter = stamp::verify(keys, KIND, &run.metadata, &spec_digest(run));
    submitter.map_or(true, |submitter| {
        let namespace = run.metadata.namespace.as_deref();
        lock::is_about(lock, &access(&submitter, namespace, run))
    })
}

/// Returns the digest of all fields that define what the run requests.
#[must_use]
pub fn spec_digest(run: &HarnessRun) -> String {
    encode::digest(&run.spec)
}

/// Checks whether the access policies permit the run, by their sealed judgement.
///
/// # Errors
/// The denial.
pub(super) fn judged(run: &HarnessRun, judgement: Option<&Judgement>) -> Result<(), Denial> {
    policy::permits_ask(judgement, terms::ask(&run.spec))?;
    match policy::ceiling(judgement) {
        Some(ceiling) if !ceiling.is_positive() => {
            let message =
                format!("an AccessPolicy limits the run to {ceiling}, which leaves no time");
            Err(Denial::new(policy::DENIED, message))
        }
        _ => Ok(()),
    }
}

/// Returns the run in the form that approvals use.
#[must_use]
pub fn candidate<'a>(run: &StoredObject<'a, HarnessRun>) -> Candidate<'a> {
    let object = run.object();
    let phase = object.status.as_ref().and_then(|status| status.phase);
    Candidate {
        kind: KIND,
        identity: run.identity,
        metadata: &object.metadata,
        answered_in: Some(run.namespace.as_str()),
        template: Some(&object.spec.template_ref.name),
        spec_digest: spec_digest(object),
        phase: match phase.unwrap_or_default() {
            RunPhase::Pending => Phase::Pending,
            RunPhase::Running | RunPhase::Idle => Phase::Active,
            RunPhase::Succeeded | RunPhase::Failed | RunPhase::Cancelled => Phase::Expired,
        },
        subjects: &[],
        emergency: object.spec.is_emergency(),
    }
}

/// Checks whether the status of a run reports its Job.
#[must_use]
pub fn has_begun(run: &HarnessRun) -> bool {
    let status = run.status.as_ref();
    status.is_some_and(|status| status.job_name.is_some())
}

/// Checks whether a run has ended, by its status.
#[must_use]
pub fn is_over(run: &HarnessRun) -> bool {
    let phase = run.status.as_ref().and_then(|status| status.phase);
    phase.is_some_and(RunPhase::is_terminal)
}

pub(super) fn prompt(run: &HarnessRun) -> Prompt<'_> {
    let source = run.spec.prompt_from.as_ref();
    let config = source.and_then(|source| source.config_map_key_ref.as_ref());
    let secret = source.and_then(|source| source.secret_key_ref.as_ref());
    match (config, secret) {
        (Some(reference), _) => Prompt::ConfigMap(reference),
        (None, Some(reference)) => Prompt::Secret(reference),
        (None, None) => Prompt::Inline,
    }
}
