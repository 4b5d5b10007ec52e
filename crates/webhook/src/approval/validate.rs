//! The hook that checks whether an approval or denial is admitted, and whether it may be withdrawn.

use std::sync::Arc;

use oz_admission::{Cx, Notes, Operation, Rejection, Review, Validate};
use oz_api::{AccessRequestApproval as Answer, labels};
use oz_audit::Sink;
use oz_core::access::approval;
use oz_core::access::seal::Keys;
use oz_core::access::stamp;
use oz_core::kinds::{Kind as _, Rules as _};
use oz_core::validate::REQUEST_METADATA;
use oz_trail::{Action, Decision, Record, RequestRef};

use super::approvable::{Approvable, Judged, Question};
use crate::lock::Locks;
use crate::record;
use crate::refusal::{bounded, forbidden, immutable, invalid, own_namespace, served};
use crate::stamp::{is_who_asks, requester};
use crate::validate_request::same_requester;

/// The hook that checks approvals and denials.
pub(super) struct ApprovalValidator {
    pub(super) keys: Keys,
    /// oz's own namespace, in which oz grants no access.
    pub(super) namespace: Arc<str>,
    /// The namespaces that the operator serves; empty for all.
    pub(super) served: Arc<[String]>,
    pub(super) records: Arc<dyn Sink>,
    pub(super) locks: Locks,
    /// The kinds that can be approved.
    pub(super) approved: Vec<Box<dyn Approvable>>,
}

impl Validate for ApprovalValidator {
    type Object = Answer;

    async fn validate(&self, cx: &Cx, review: &Review<Answer>) -> Result<Notes, Rejection> {
        match (review.operation, &review.object, &review.old) {
            (Operation::Create, Some(object), _) => self.create(cx, review, object).await,
            (Operation::Update, Some(object), Some(old)) => unchanged(object, old),
            (Operation::Delete, _, Some(old)) => self.withdraw(cx, review, old).await,
            _ => Ok(Notes::none()),
        }
    }
}

impl ApprovalValidator {
    async fn create(
        &self,
        cx: &Cx,
        review: &Review<Answer>,
        object: &Answer,
    ) -> Result<Notes, Rejection> {
        let judged = self.judge(cx, review, object).await;
        if cx.dry_run {
            return judged.map(|_| Notes::none());
        }
        let user = &review.user.username;
        let about = &object.spec.access_request_ref;
        match judged {
            Ok(judged) => {
                let (action, decision, verb) = match object.spec.approval {
                    true => (Action::ApprovalGiven, Decision::Allow, "approved"),
                    false => (Action::ApprovalDenied, Decision::Deny, "denied"),
                };
                let message = format!("{user} {verb} {} {}", about.kind, about.name);
                let uid = object.metadata.uid.as_deref().unwrap_or(&review.uid);
                let record = Record::about(cx.now, action, decision, uid, "Answered", message);
                let mut record = self.with_review(record, review, object);
                record.template = judged.template;
                let record = record.detail("rules", judged.rules.join(", "));
                let record = record.detail("digest", object.spec.digest.clone());
                record::write(&*self.records, &record).await?;
                Ok(Notes::none())
            }
            Err(rejection) => {
                let (action, reason) = (Action::ApprovalRefused, &rejection.reason);
                let message = rejection.message.clone();
                let deny = Decision::Deny;
                let record = Record::about(cx.now, action, deny, &review.uid, reason, message);
                let record = self.with_review(record, review, object);
                record::write_refusal(&*self.records, &record).await;
                Err(rejection)
            }
        }
    }

    async fn judge(
        &self,
        cx: &Cx,
        review: &Review<Answer>,
        object: &Answer,
    ) -> Result<Judged, Rejection> {
        let namespace = review.namespace.as_deref();
        let approvable = self.approvable(object)?;
        let is_own = namespace == Some(&*self.namespace);
        match (approvable.is_of_the_cluster(), is_own) {
            (true, true) => {}
            (true, false) => return Err(elsewhere(object, &self.namespace)),
            (false, true) => return Err(own_namespace(&self.namespace)),
            (false, false) => served(&self.served, namespace)?,
        }
        bounded(&object.metadata, None, &REQUEST_METADATA)?;
        let violations = object.violations(cx.now);
        if !violations.is_empty() {
            return Err(invalid(Answer::title(), &violations));
        }
        let (kind, digest) = (Answer::title(), object.spec_digest());
        let stamped = stamp::verify(&self.keys, kind, &object.metadata, &digest);
        is_who_asks(&stamped, &review.user, "create the answer")?;
        let approver = requester(&review.user);
        let access = approval::access(&approver, namespace);
        self.locks.admit(&access, cx.now).await?;
        let question = Question {
            keys: &self.keys,
            cx,
            review,
            object,
        };
        approvable.judge(question).await
    }

    fn approvable(&self, object: &Answer) -> Result<&dyn Approvable, Rejection> {
        let kind = object.spec.access_request_ref.kind;
        let found = self
            .approved
            .iter()
            .find(|one| one.kind() == <&str>::from(kind));
        found.map(AsRef::as_ref).ok_or_else(|| {
            let message = format!("a {kind} has no approvals; name another kind");
            forbidden(
                "ApprovalNotRequired",
                "spec.accessRequestRef.kind",
                &message,
            )
        })
    }

    /// Withdraws an approval or denial for its author, while its request is pending.
    async fn withdraw(
        &self,
        cx: &Cx,
        review: &Review<Answer>,
        old: &Answer,
    ) -> Result<Notes, Rejection> {
        let question = Question {
            keys: &self.keys,
            cx,
            review,
            object: old,
        };
        let withdrawn = self.approvable(old)?.withdraw(question).await;
        if cx.dry_run {
            return withdrawn.map(|()| Notes::none());
        }
        let user = &review.user.username;
        let (decision, reason, message) = match &withdrawn {
            Ok(()) => {
                let about = &old.spec.access_request_ref;
                let message = format!(
                    "{user} withdrew their approval or denial of {} {}",
                    about.kind, about.name
                );
                (Decision::End, "Withdrawn".to_owned(), message)
            }
            Err(refusal) => (
                Decision::Deny,
                refusal.reason.to_string(),
                refusal.message.clone(),
            ),
        };
        // The user may retry a withdrawal that was denied.
        let subject = match (&withdrawn, &old.metadata.uid) {
            (Ok(()), Some(uid)) => uid,
            _ => &review.uid,
        };
        let action = Action::ApprovalWithdrawn;
        let record = Record::about(cx.now, action, decision, subject, &reason, message);
        let record = self.with_review(record, review, old);
        match withdrawn {
            Ok(()) => {
                record::write(&*self.records, &record).await?;
                Ok(Notes::none())
            }
            Err(refusal) => {
                record::write_refusal(&*self.records, &record).await;
                Err(refusal)
            }
        }
    }

    /// Adds the user, the request and the reason to an audit record.
    fn with_review(&self, mut record: Record, review: &Review<Answer>, object: &Answer) -> Record {
        let about = &object.spec.access_request_ref;
        let approvable = self.approvable(object);
        let is_of_the_cluster = approvable.is_ok_and(Approvable::is_of_the_cluster);
        record.user = Some(requester(&review.user));
        record.request = RequestRef {
            kind: about.kind.to_string(),
            name: about.name.clone(),
            uid: about.uid.clone(),
            ..RequestRef::default()
        };
        if !is_of_the_cluster {
            record::set_namespace(&mut record, review);
        }
        match &object.spec.reason {
            Some(reason) => record.detail("reason", reason.clone()),
            None => record,
        }
    }
}

/// Returns the denial because approvals and denials of cluster-scoped objects belong into oz's
/// namespace, where only users who may approve cluster-wide may create them.
fn elsewhere(object: &Answer, namespace: &str) -> Rejection {
    let kind = object.spec.access_request_ref.kind;
    let message = format!(
        "a {kind} is cluster-scoped, and its approvals are in oz's namespace {namespace}; create \
            the approval there"
    );
    forbidden("NotInOzNamespace", "metadata.namespace", &message)
}

/// Denies a change of an approval or denial, of its author or of its request.
fn unchanged(object: &Answer, old: &Answer) -> Result<Notes, Rejection> {
    bounded(&object.metadata, Some(&old.metadata), &REQUEST_METADATA)?;
    if object.spec != old.spec {
        let message =
            "an approval is immutable: delete it while the request is pending, and create another";
        return Err(immutable("spec", message));
    }
    same_requester(&old.metadata, &object.metadata)?;
    let about = |object: &Answer| {
        let labels = object.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(labels::REQUEST_UID).cloned())
    };
    if about(object) != about(old) {
        let field = format!("metadata.labels[{}]", labels::REQUEST_UID);
        let message = "only oz writes the label that selects the approvals of a request";
        return Err(immutable(&field, message));
    }
    let owned = object.metadata.owner_references.as_deref();
    if owned.is_some_and(|owners| !owners.is_empty()) {
        let message = "an approval has no owner, so that it is not deleted with another object";
        return Err(immutable("metadata.ownerReferences", message));
    }
    Ok(Notes::none())
}
