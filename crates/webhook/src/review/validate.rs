//! The hook that checks whether a user may write a finding, or attest who could get access, and
//! that denies every other creation, change or deletion of a review.

use std::sync::Arc;

use oz_admission::{Cx, Notes, Operation, Rejection, Review, Validate};
use oz_api::{AccessReview, Attestation, Name, Requester, labels};
use oz_audit::Sink;
use oz_core::access::emergency::{finding, review};
use oz_core::access::seal::Keys;
use oz_core::kinds::{Kind as _, Rules as _};
use oz_core::validate::REQUEST_METADATA;
use oz_trail::{Action, Decision, Record};

use crate::record;
use crate::refusal::{bounded, denied, forbidden, immutable, invalid, status_is_the_operators};
use crate::stamp::requester;

/// The hook that checks reviews.
pub(super) struct ReviewValidator {
    pub(super) keys: Keys,
    pub(super) operator: Arc<str>,
    pub(super) records: Arc<dyn Sink>,
}

impl Validate for ReviewValidator {
    type Object = AccessReview;

    async fn validate(&self, cx: &Cx, review: &Review<AccessReview>) -> Result<Notes, Rejection> {
        if review.subresource.as_deref() == Some("status") {
            let next = "write the finding into spec.finding and spec.reason";
            return status_is_the_operators(review, &self.operator, next);
        }
        let (about, judged) = match (review.operation, &review.object, &review.old) {
            (Operation::Create, Some(object), _) => (object, self.created(cx, review, object)),
            (Operation::Delete, _, Some(old)) => (old, Err(kept(old))),
            (Operation::Update, Some(object), Some(old)) if object.spec == old.spec => {
                return unchanged(object, old).map(|()| Notes::none());
            }
            (Operation::Update, Some(object), Some(old)) => {
                (object, self.judge(cx, review, object, old))
            }
            _ => return Ok(Notes::none()),
        };
        if cx.dry_run {
            return judged.map(|()| Notes::none());
        }
        match judged {
            Ok(()) => {
                let record = self.given(cx, review, about)?;
                record::write(&*self.records, &record).await?;
                Ok(Notes::none())
            }
            Err(rejection) => {
                let record = refused(cx, review, about, &rejection);
                record::write_refusal(&*self.records, &record).await;
                Err(rejection)
            }
        }
    }
}

impl ReviewValidator {
    fn made_by_others(&self) -> Rejection {
        Rejection::forbidden(
            "ReviewReserved",
            format!(
                "only oz's operator ({}) creates reviews, one for each emergency; `ozctl reviews` \
                 lists those that you can write, and an attestation must have spec.attestation \
                 alone (`ozctl audit attest`)",
                self.operator
            ),
        )
    }

    /// Checks a new review: a user may create only an attestation, of their own; only oz creates
    /// other reviews.
    fn created(
        &self,
        cx: &Cx,
        review: &Review<AccessReview>,
        object: &AccessReview,
    ) -> Result<(), Rejection> {
        if object.spec.attestation.is_none() {
            return Err(self.made_by_others());
        }
        let person = requester(&review.user);
        if person.service_account().is_some() {
            return Err(Rejection::forbidden(
                "AttestedByAccount",
                format!(
                    "{} is a service account: an attestation requires a person; have a user attest",
                    person.user
                ),
            ));
        }
        bounded(&object.metadata, None, &REQUEST_METADATA)?;
        let violations = object.violations(cx.now);
        if !violations.is_empty() {
            return Err(invalid(AccessReview::title(), &violations));
        }
        unowned(object)?;
        self.is_sealed_by(object, &person)
    }

    fn judge(
        &self,
        cx: &Cx,
        review: &Review<AccessReview>,
        object: &AccessReview,
        old: &AccessReview,
    ) -> Result<(), Rejection> {
        bounded(&object.metadata, Some(&old.metadata), &REQUEST_METADATA)?;
        let person = requester(&review.user);
        review::may(&self.keys, &person, old, object, cx.now).map_err(denied)?;
        let violations = object.violations(cx.now);
        if !violations.is_empty() {
            return Err(invalid(AccessReview::title(), &violations));
        }
        belongs(object, old)?;
        self.is_sealed_by(object, &person)
    }

    /// Returns the audit record of a finding or an attestation. That of a finding proves it: a review is deleted with
    /// its namespace.
    fn given(
        &self,
        cx: &Cx,
        review: &Review<AccessReview>,
        object: &AccessReview,
    ) -> Result<Record, Rejection> {
        if let Some(attestation) = &object.spec.attestation {
            return Ok(attested(cx, review, object, attestation));
        }
        let user = &review.user.username;
        let found = object.spec.finding.unwrap_or_default();
        let message = format!("{user} found {} {found}", review::subject_named(object));
        let (action, allow) = (Action::ReviewGiven, Decision::Allow);
        let record = review::record(object, cx.now, action, allow, found.into(), message);
        let record = with_review(record, review, object);
        finding::proven(&self.keys, record, object).map_err(|error| {
            let message = format!("failed to seal the audit record of the finding: {error}");
            Rejection::new(500, "SealFailed", message)
        })
    }

    /// Checks that the stored contents are the sealed contents.
    fn is_sealed_by(&self, object: &AccessReview, person: &Requester) -> Result<(), Rejection> {
        let sealed = review::read(&self.keys, object).and_then(|standing| standing.by);
        if sealed.as_ref() == Some(person) {
            return Ok(());
        }
        let message = "the review has no valid seal with its author: oz's admission webhook was \
                       not called, or the review was changed since; write it again";
        Err(Rejection::forbidden("ReviewForged", message.to_owned()))
    }
}

/// Denies a change of oz's metadata of a review in which no finding is written.
fn unchanged(object: &AccessReview, old: &AccessReview) -> Result<(), Rejection> {
    bounded(&object.metadata, Some(&old.metadata), &REQUEST_METADATA)?;
    belongs(object, old)?;
    let annotation = |object: &AccessReview, key: &str| {
        let annotations = object.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(key).cloned())
    };
    for key in [labels::REVIEW, labels::REVIEWED_BY] {
        if annotation(object, key) != annotation(old, key) {
            let field = format!("metadata.annotations[{key}]");
            return Err(immutable(&field, "only oz writes the seal of a review"));
        }
    }
    Ok(())
}

/// Denies a change of the label by which a review is found, and an owner, with which the review
/// would be deleted.
fn belongs(object: &AccessReview, old: &AccessReview) -> Result<(), Rejection> {
    let about = |object: &AccessReview| {
        let labels = object.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(labels::REQUEST_UID).cloned())
    };
    if about(object) != about(old) {
        let field = format!("metadata.labels[{}]", labels::REQUEST_UID);
        return Err(immutable(
            &field,
            "only oz writes the label that selects reviews",
        ));
    }
    unowned(object)
}

fn unowned(object: &AccessReview) -> Result<(), Rejection> {
    let owned = object.metadata.owner_references.as_deref();
    if owned.is_some_and(|owners| !owners.is_empty()) {
        let message = "a review has no owner, so that it is not deleted with another object";
        return Err(immutable("metadata.ownerReferences", message));
    }
    Ok(())
}

fn kept(old: &AccessReview) -> Rejection {
    let name = match Name::from_metadata(&old.metadata) {
        Ok(name) => name,
        Err(error) => return forbidden("ReviewRetained", "metadata.name", &error.to_string()),
    };
    let message = match old.spec.is_written() {
        false => format!(
            "review {name} is open, and an open review cannot be deleted: have a reviewer write \
             the finding (`ozctl review {name} --finding …`)"
        ),
        true => format!(
            "review {name} is kept as long as the audit records of its time (audit.retention), and \
             is deleted then"
        ),
    };
    forbidden("ReviewRetained", "metadata.name", &message)
}

/// Returns the audit record of an attestation.
fn attested(
    cx: &Cx,
    review: &Review<AccessReview>,
    object: &AccessReview,
    attestation: &Attestation,
) -> Record {
    let user = &review.user.username;
    let message = format!(
        "{user} attested the entitlements: {} to be kept, {} to be removed",
        attestation.kept, attestation.removed
    );
    let (action, allow) = (Action::EntitlementsAttested, Decision::Allow);
    let record = review::record(object, cx.now, action, allow, "Attested", message);
    // The object has no UID yet, and each attestation is a separate fact.
    Record {
        id: Record::id(action, &review.uid),
        ..with_review(record, review, object)
    }
}

/// Returns the audit record of a denied operation. The user may retry it.
fn refused(
    cx: &Cx,
    review: &Review<AccessReview>,
    object: &AccessReview,
    rejection: &Rejection,
) -> Record {
    let (action, deny) = (Action::ReviewRefused, Decision::Deny);
    let (reason, message) = (&rejection.reason, rejection.message.clone());
    let record = review::record(object, cx.now, action, deny, reason, message);
    Record {
        id: Record::id(action, &review.uid),
        ..with_review(record, review, object)
    }
}

fn with_review(record: Record, review: &Review<AccessReview>, object: &AccessReview) -> Record {
    let mut record = Record {
        user: Some(requester(&review.user)),
        ..record
    };
    // The operator sealed the name of a deleted namespace; a review that is denied may name any.
    if object.spec.reviewed_namespace.is_none() || record.decision == Decision::Deny {
        record::set_namespace(&mut record, review);
    }
    let finding = object
        .spec
        .finding
        .map(|finding| ("finding", finding.to_string()));
    let reason = object.spec.reason.clone().map(|reason| ("reason", reason));
    finding
        .into_iter()
        .chain(reason)
        .fold(record, |record, (name, value)| record.detail(name, value))
}
