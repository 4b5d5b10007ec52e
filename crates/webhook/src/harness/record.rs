//! The audit records of the admission of harness runs. They have no owner, so that each outlives
//! its object.

use jiff::Timestamp;
use kube::Resource;
use oz_admission::{Cx, Rejection, Review};
use oz_audit::Sink;
use oz_trail::{Action, Decision, Record};

use crate::record;
use crate::stamp::requester;

/// Records a decision. An admission waits for its audit record; a denial does not depend on it.
///
/// # Errors
/// The failure to write the audit record of an admission.
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

/// Returns the audit record of an object that the user of the review created or changed.
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
    record::set_namespace(&mut record, review);
    name.clone_into(&mut record.request.name);
    record
}
