//! The records of admission of harness runs. None has an owner: it outlives what it tells of.

use jiff::Timestamp;
use kube::Resource;
use oz_admission::{Cx, Rejection, Review};
use oz_audit::Sink;
use oz_trail::{Action, Decision, Record};

use crate::record;
use crate::stamp::requester;

/// Puts on record what was decided. What is let in waits for its record; a refusal stands either way.
///
/// # Errors
/// That what is let in cannot be put on record.
pub(super) async fn decided(
    cx: &Cx,
    records: &dyn Sink,
    mut written: Record,
    rejection: Option<&Rejection>,
) -> Result<(), Rejection> {
    if cx.dry_run {
        return Ok(());
    }
    let Some(rejection) = rejection else {
        return record::write(records, &written).await;
    };
    written.decision = Decision::Deny;
    written.reason = rejection.reason.to_string();
    written.message.clone_from(&rejection.message);
    record::write_refusal(records, &written).await;
    Ok(())
}

/// The record that something was created or changed by the user of the review.
pub(super) fn about<K: Resource<DynamicType = ()>>(
    now: Timestamp,
    review: &Review<K>,
    action: Action,
    digest: &str,
) -> Record {
    let user = &review.user.username;
    let (reason, verb) = match (action, &review.old) {
        (Action::RunSubmitted, _) => ("Submitted", "submits"),
        (_, Some(_)) => ("Changed", "changed"),
        (_, None) => ("Created", "created"),
    };
    let (kind, name) = (K::kind(&()), review.display_name());
    let message = format!("{user} {verb} {kind} {name}");
    let subject = format!("{} {digest}", review.uid);
    let mut record = Record::about(now, action, Decision::Allow, &subject, reason, message);
    record.user = Some(requester(&review.user));
    record.request.kind = kind.into_owned();
    record.request.namespace = review.namespace.clone().unwrap_or_default();
    name.clone_into(&mut record.request.name);
    record
}
