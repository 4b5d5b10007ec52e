//! The audit records of admission: that a request was let in, and that one was not.

use jiff::Timestamp;
use oz_admission::{Rejection, Review};
use oz_audit::Sink;
use oz_core::access::policy::{self, Judgement, When};
use oz_core::access::request::Request;
use oz_core::kinds::{AccessRequest, AccessTemplate, Kind};
use oz_trail::{Action, Decision, Record};

use crate::attributed::log_unwritten;
use crate::stamp::requester;

/// The record of a request that is let in.
pub(crate) fn admitted<R: AccessRequest>(
    now: Timestamp,
    review: &Review<R>,
    request: &Request<'_>,
    template: Option<&R::Template>,
) -> Record {
    let user = &review.user.username;
    let message = match request.duration {
        Some(duration) => format!(
            "{user} asks for {duration} by template {}",
            request.template
        ),
        None => format!("{user} asks for access by template {}", request.template),
    };
    let record = request.record(
        now,
        Action::RequestCreated,
        Decision::Allow,
        "Admitted",
        &message,
    );
    let template_digest = template.map(Kind::spec_digest);
    Record {
        template_digest,
        ..with_review(record, review)
    }
}

/// With the policies that applied to it, as they were, and whether its template's own rules did.
pub(crate) fn judged(mut record: Record, judgement: Option<&Judgement>) -> Record {
    let Some(judgement) = judgement else {
        return record;
    };
    if !judgement.policies.is_empty() {
        record = record.detail("policies", policy::applied(&judgement.policies));
    }
    let when = match &judgement.when {
        None => return record,
        Some(When::Applies) => "applies".to_owned(),
        Some(When::Exempts) => "exempts".to_owned(),
        Some(When::Failed(why)) => format!("failed, so it applies: {why}"),
    };
    record.detail("approvalWhen", when)
}

/// The record of a request that is refused.
pub(crate) fn refused<R: AccessRequest>(
    now: Timestamp,
    review: &Review<R>,
    request: &Request<'_>,
    rejection: &Rejection,
) -> Record {
    let (reason, message) = (&rejection.reason, &rejection.message);
    let record = request.record(now, Action::RequestDenied, Decision::Deny, reason, message);
    with_review(record, review)
}

/// The record of a template that was made, or whose spec was changed.
pub(crate) fn template_changed<T: AccessTemplate>(
    now: Timestamp,
    review: &Review<T>,
    template: &T,
) -> Record {
    let user = &review.user.username;
    let digest = template.spec_digest();
    let (reason, verb) = match &review.old {
        Some(_) => ("Changed", "changed"),
        None => ("Created", "created"),
    };
    let namespace = review.namespace.clone().unwrap_or_default();
    let subject = format!("{} {}", review.uid, digest);
    let message = format!(
        "{user} {verb} {} {}",
        review.kind.kind,
        review.display_name()
    );
    let mut record = Record::about(
        now,
        Action::TemplateChanged,
        Decision::Allow,
        &subject,
        reason,
        message,
    );
    record.user = Some(requester(&review.user));
    record.request.kind.clone_from(&review.kind.kind);
    record.request.namespace = namespace;
    review.display_name().clone_into(&mut record.template);
    record.template.clone_into(&mut record.request.name);
    record.template_digest = Some(digest);
    if let Some(old) = &review.old {
        record = record.detail("before", old.spec_digest());
    }
    record
}

/// The record of a template that somebody was not to make, or to change so.
pub(crate) fn template_refused<T: AccessTemplate>(
    now: Timestamp,
    review: &Review<T>,
    template: &T,
    rejection: &Rejection,
) -> Record {
    Record {
        decision: Decision::Deny,
        reason: rejection.reason.to_string(),
        message: rejection.message.clone(),
        ..template_changed(now, review, template)
    }
}

/// Puts something on record before it is let through.
pub(crate) async fn write(records: &dyn Sink, record: &Record) -> Result<(), Rejection> {
    records.record(record).await.map_err(|failure| {
        Rejection::new(
            503,
            "RecordFailed",
            format!("it cannot be put on record ({failure}); try again"),
        )
    })
}

/// Puts a refusal on record, as far as that can be done: it is refused either way.
pub(crate) async fn write_refusal(records: &dyn Sink, record: &Record) {
    write_if_possible(records, record).await;
}

/// Puts on record what does not wait for that.
pub(crate) async fn write_if_possible(records: &dyn Sink, record: &Record) {
    if let Err(unwritten) = write(records, record).await {
        log_unwritten(&unwritten.to_string(), record);
    }
}

/// Who and where, as the API server says it rather than as the object does.
fn with_review<R>(mut record: Record, review: &Review<R>) -> Record {
    record.user = Some(requester(&review.user));
    review.display_name().clone_into(&mut record.request.name);
    record.request.namespace = review.namespace.clone().unwrap_or_default();
    record
}
