//! The audit records of admission: of admitted and of denied requests.

use jiff::Timestamp;
use oz_admission::{Rejection, Review};
use oz_audit::Sink;
use oz_core::access::policy::{self, Judgement, When};
use oz_core::access::request::Request;
use oz_core::kinds::{AccessRequest, AccessTemplate, Kind};
use oz_trail::{Action, Decision, Record};

use crate::attributed::log_unwritten;
use crate::stamp::requester;

/// Returns the audit record of an admitted request.
pub(crate) fn admitted<R: AccessRequest>(
    now: Timestamp,
    review: &Review<R>,
    request: &Request<'_>,
    template: Option<&R::Template>,
) -> Record {
    let user = &review.user.username;
    let message = match request.duration {
        Some(duration) => format!(
            "{user} requests {duration} of access by template {}",
            request.template
        ),
        None => format!("{user} requests access by template {}", request.template),
    };
    let record = request.admission(
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

/// Adds the applied policies, as they were, and whether the template's own rules applied.
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

/// Returns the audit record of a denied request.
pub(crate) fn refused<R: AccessRequest>(
    now: Timestamp,
    review: &Review<R>,
    request: &Request<'_>,
    rejection: &Rejection,
) -> Record {
    let (reason, message) = (&rejection.reason, &rejection.message);
    let record = request.admission(now, Action::RequestDenied, Decision::Deny, reason, message);
    with_review(record, review)
}

/// Returns the audit record of a template that was created, or that has a changed spec.
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
    set_namespace(&mut record, review);
    review.display_name().clone_into(&mut record.template);
    record.template.clone_into(&mut record.request.name);
    record.template_digest = Some(digest);
    if let Some(old) = &review.old {
        record = record.detail("before", old.spec_digest());
    }
    record
}

/// Returns the audit record of the denied creation or change of a template.
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

/// Records an operation before it is admitted.
pub(crate) async fn write(records: &dyn Sink, record: &Record) -> Result<(), Rejection> {
    records.record(record).await.map_err(|failure| {
        Rejection::new(
            503,
            "RecordFailed",
            format!("failed to write the audit record ({failure}); try again"),
        )
    })
}

/// Records a denial if possible: the denial does not depend on the audit record.
pub(crate) async fn write_refusal(records: &dyn Sink, record: &Record) {
    write_if_possible(records, record).await;
}

/// Records an operation that does not wait for its audit record.
pub(crate) async fn write_if_possible(records: &dyn Sink, record: &Record) {
    if let Err(unwritten) = write(records, record).await {
        log_unwritten(&unwritten.to_string(), record);
    }
}

/// Adds the user, the name and the namespace from the API server instead of from the object.
fn with_review<R>(mut record: Record, review: &Review<R>) -> Record {
    record.user = Some(requester(&review.user));
    review.display_name().clone_into(&mut record.request.name);
    set_namespace(&mut record, review);
    record
}

/// Adds the namespace from the API server; an object of the whole cluster has none.
pub(crate) fn set_namespace<R>(record: &mut Record, review: &Review<R>) {
    if let Some(namespace) = &review.namespace {
        record.request.namespace.clone_from(namespace);
    }
}
