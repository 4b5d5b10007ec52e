//! The hooks for writes and deletions of AccessPolicies. A policy that does not compile is denied;
//! the audit record names the author of each change. A deletion never waits for the webhook.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Resource as _;
use kube::core::PartialObjectMeta;
use oz_admission::{Cx, Notes, Operation, Rejection, Review, Validate};
use oz_api::AccessPolicy;
use oz_audit::Sink;
use oz_cel::Expressions;
use oz_core::access::policy::MAX_POLICIES;
use oz_core::kinds::{Kind as _, Rules as _};
use oz_core::validate::{TEMPLATE_METADATA, Violation};
use oz_trail::{Action, Decision, Record};

use super::judge::Judges;
use crate::connect::policies::{POLICY_TIMEOUT, apart};
use crate::record;
use crate::refusal::{bounded, invalid, status_is_the_operators};
use crate::stamp::requester;

/// The hook that checks policies.
pub(super) struct PolicyValidator {
    pub(super) operator: Arc<str>,
    pub(super) records: Arc<dyn Sink>,
    pub(super) judges: Judges,
}

impl Validate for PolicyValidator {
    type Object = AccessPolicy;

    async fn validate(&self, cx: &Cx, review: &Review<AccessPolicy>) -> Result<Notes, Rejection> {
        let Some(policy) = &review.object else {
            return Ok(Notes::none());
        };
        if review.subresource.as_deref() == Some("status") {
            let next = "change the spec; oz updates the status";
            return status_is_the_operators(review, &self.operator, next);
        }
        let old = review.old.as_ref().map(|old| old.meta());
        bounded(policy.meta(), old, &TEMPLATE_METADATA)?;
        let digest = policy.spec_digest();
        let before = review.old.as_ref().map(AccessPolicy::spec_digest);
        // A stored policy was checked when it was admitted: labels and finalizers may change.
        if before.as_ref() == Some(&digest) {
            return Ok(Notes::none());
        }
        let checked = self.check(cx, review, policy).await;
        if !cx.dry_run {
            let mut written = written(cx, review, &digest, before);
            match &checked {
                Ok(()) => record::write(&*self.records, &written).await?,
                Err(refusal) => {
                    written.decision = Decision::Deny;
                    written.reason = refusal.reason.to_string();
                    written.message.clone_from(&refusal.message);
                    record::write_refusal(&*self.records, &written).await;
                }
            }
        }
        checked.map(|()| Notes::none())
    }
}

impl PolicyValidator {
    async fn check(
        &self,
        cx: &Cx,
        review: &Review<AccessPolicy>,
        policy: &AccessPolicy,
    ) -> Result<(), Rejection> {
        let violations = policy.violations(cx.now);
        if !violations.is_empty() {
            return Err(invalid(AccessPolicy::title(), &violations));
        }
        let (spec, until) = (policy.spec.clone(), Instant::now() + POLICY_TIMEOUT);
        let work = move |_: &Expressions| {
            let checked = oz_cel::policy::check(&spec, until);
            checked.map_err(|(field, why)| (field, why.to_string()))
        };
        let compiled = apart((), Expressions::default(), work).await;
        let compiled = compiled.unwrap_or_else(|late| Err(("spec.match", late.to_string())));
        if let Err((field, why)) = compiled {
            let violation = Violation::new(field, format!("cannot be evaluated: {why}"));
            return Err(invalid(AccessPolicy::title(), &[violation]));
        }
        if review.operation == Operation::Create && self.judges.count().await? >= MAX_POLICIES {
            let message = format!(
                "there are {MAX_POLICIES} AccessPolicies, which is the maximum; delete one, or add \
                 the rule to an existing one"
            );
            return Err(Rejection::forbidden("TooManyPolicies", message));
        }
        Ok(())
    }
}

/// Returns the audit record of a policy that was created, or that has a changed spec.
fn written(cx: &Cx, review: &Review<AccessPolicy>, digest: &str, before: Option<String>) -> Record {
    let (reason, verb) = match &before {
        Some(_) => ("Changed", "changed"),
        None => ("Created", "created"),
    };
    let subject = format!("{} {digest}", review.uid);
    let uid = review
        .object
        .as_ref()
        .and_then(|it| it.metadata.uid.clone());
    let record = about(cx, review, &subject, (Decision::Allow, reason, verb), uid);
    let record = record.detail("after", digest.to_owned());
    match before {
        Some(before) => record.detail("before", before),
        None => record,
    }
}

/// Returns the audit record of an operation on a policy. It has no owner, and outlives the policy.
fn about<K>(
    cx: &Cx,
    review: &Review<K>,
    subject: &str,
    (decision, reason, verb): (Decision, &str, &str),
    uid: Option<String>,
) -> Record {
    let (user, name) = (&review.user.username, review.display_name());
    let message = format!("{user} {verb} AccessPolicy {name}");
    let action = Action::PolicyChanged;
    let mut record = Record::about(cx.now, action, decision, subject, reason, message);
    record.user = Some(requester(&review.user));
    AccessPolicy::title().clone_into(&mut record.request.kind);
    name.clone_into(&mut record.request.name);
    if let Some(uid) = uid {
        record.request.uid = uid;
    }
    record
}

/// The hook for deletions of policies.
pub(super) struct PolicyDeletions {
    pub(super) records: Arc<dyn Sink>,
}

impl Validate for PolicyDeletions {
    /// A policy can be deleted regardless of its contents.
    type Object = PartialObjectMeta<AccessPolicy>;

    async fn validate(&self, cx: &Cx, review: &Review<Self::Object>) -> Result<Notes, Rejection> {
        if !cx.dry_run {
            let uid = review.old.as_ref().and_then(|old| old.metadata.uid.clone());
            let told = (Decision::Allow, "Deleted", "deleted");
            let record = about(cx, review, &review.uid, told, uid);
            record::write_if_possible(&*self.records, &record).await;
        }
        Ok(Notes::none())
    }
}

/// The time that the API server waits for the response to a deletion.
pub(super) const DELETION_TIMEOUT: Duration = Duration::from_secs(3);
