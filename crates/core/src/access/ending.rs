//! The end, retention and deletion of a request, the same for each kind of request.
//!
//! The order of an end is: the objects that give access, the audit record, the status. The object that carries the
//! sealed decision is deleted last, in a later pass, so that the decision can be read until the status reports the end.
//!
//! See docs/adr/0018-a-grant-that-ended-is-deleted-soon.md.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use oz_api::conditions::{self, reason};
use oz_api::{EndReason, GROUP, RequestStatus, Uid, VERSION, labels};
use oz_trail::{Action, Decision, Record};

use super::grant::Grant;
use super::kind::{KeepFinished, PodReplaced};
use super::request::StoredRequest;
use super::status::{self, Fact, end_message, end_reason};
use super::unseen::{GrantObjects, undecided, unseen};
use super::{approval, objects, policy, sessions, ticket};
use crate::controller::{Failure, Live, Plan, Step};
use crate::lifecycle::revoke::{self, Marks, by_power, disarm, remove};
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::{after, has_come};
use crate::lifecycle::{End, drift};
use crate::sessions::{NOT_ENDED, SessionsEnded};

/// Creates the audit record of a grant.
#[must_use]
pub fn granted(now: Timestamp, grant: &Grant) -> Record {
    let mut message = format!(
        "{} may use pod {} until {}",
        grant.requester.user, grant.pod.name, grant.window.until
    );
    let approvers = approval::approvers(&grant.approvals);
    if !approvers.is_empty() {
        message = format!("{message}; approved by {approvers}");
    }
    if let Some(on_call) = &grant.on_call {
        message = format!("{message}; {}", on_call.message());
    }
    let action = match &grant.emergency {
        Some(emergency) => {
            let due = emergency.due_at;
            message =
                format!("EMERGENCY: {message}, without an approval; to be reviewed until {due}");
            Action::EmergencyGranted
        }
        None => Action::AccessGranted,
    };
    let reason = reason::SUCCESS;
    let mut record = grant.record(now, action, Decision::Allow, reason, message);
    if !grant.policies.is_empty() {
        record = record.detail("policies", policy::applied(&grant.policies));
    }
    if let Some(on_call) = &grant.on_call {
        record = record
            .detail("onCallChecks", on_call.names())
            .detail("approvalReplaced", on_call.rules.join(", "));
    }
    if let Some(ticket) = &grant.ticket {
        record = ticket::detailed(record, ticket);
    }
    if approvers.is_empty() {
        return record;
    }
    record.detail("approvedBy", approvers)
}

/// Creates the audit record of the move of a grant to another pod.
#[must_use]
pub fn moved(now: Timestamp, why: &PodReplaced, grant: &Grant) -> Record {
    let message = format!(
        "{why}; {} may use pod {} until {}",
        grant.requester.user, grant.pod.name, grant.window.until
    );
    let (action, reason) = (Action::TargetPinned, "PodReplaced");
    let mut record = grant.record(now, action, Decision::Allow, reason, message);
    // Each pod is a fact of its own.
    record.id = Record::id(action, &format!("{} {}", grant.request.uid, grant.pod.uid));
    record
}

/// The interval between checks of a pod that is terminating, in case that no event reports its end.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// Returns the plan for a request that must end now.
#[must_use]
pub fn ending(
    now: Timestamp,
    request: &StoredRequest<'_>,
    end: &End,
    grant: Option<&Grant>,
    live: &[Live],
) -> Plan {
    let recorded = request
        .status
        .and_then(|status| status.ending.as_ref())
        .filter(|ending| ending.recorded);
    let first = recorded.is_none();
    let given_up = recorded.is_some_and(|end| end.sessions_abandoned);
    let records = match (recorded, grant) {
        (None, _) => records(now, request, end, grant),
        (Some(ending), Some(grant)) => {
            let late = sessions::not_reached(now, grant, ending);
            late.into_iter().collect()
        }
        (Some(_), None) => Vec::new(),
    };
    let sessions = match grant {
        _ if given_up => None,
        // What ends with its pod needs nothing done, and is said once.
        Some(grant) if !first && grant.own_pod.is_some() => None,
        Some(grant) => sessions::end(now, end, grant),
        None => sessions::end_forgotten(now, end, request),
    };
    let live = objects::ours(request, live);
    let (powerful, _) = by_power(&live);
    let powers = live.iter().filter(|live| revoke::gives_access(live));
    let armed = disarm(request.marks(), powers);
    let waiting =
        powerful.is_empty() && armed.is_empty() && live.iter().any(revoke::still_gives_access);
    Plan::default()
        .then(armed)
        .then(powerful)
        // What is known is gone; only now is asked for what nobody has told of.
        .then(unseen(&GrantObjects::new(request, grant), &live))
        // Beside each other: what cannot be put on record runs on no longer for that.
        .then(records.into_iter().map(Step::Record).chain(sessions))
        .wake_at(if waiting {
            // An event tells when the pod has ended.
            after(now, LOOK_AGAIN)
        } else {
            now
        })
}

fn records(
    now: Timestamp,
    request: &StoredRequest<'_>,
    end: &End,
    grant: Option<&Grant>,
) -> Vec<Record> {
    let mut records = Vec::new();
    if end.is_drift() {
        let (action, reason, what) = (Action::DriftDetected, end_reason(end), end.detail());
        records.push(match grant {
            Some(grant) => grant.record(now, action, Decision::End, reason, what),
            None => {
                // The decision is lost with the object that carried it; the status remembers for people.
                let mut record = request.record(now, action, Decision::End, reason, what);
                record.until = request.status.and_then(|status| status.expires_at);
                record
            }
        });
    }
    if let Some(grant) = grant {
        records.push(ended(now, end, grant));
    }
    if end.reason == EndReason::SealRetired && grant.is_none() {
        let (reason, message) = (end_reason(end), end_message(end));
        let mut record = request.record(now, end.action(), Decision::End, reason, &message);
        record.until = request.status.and_then(|status| status.expires_at);
        let told = request.status.and_then(|status| status.requester.clone());
        records.push(match told {
            // As the status tells, which proves nothing.
            Some(user) => record.detail("requester", user),
            None => record,
        });
    }
    if end.reason == EndReason::ApprovalTimedOut {
        let (action, reason) = (Action::ApprovalTimedOut, end_reason(end));
        records.push(request.record(now, action, Decision::End, reason, end.detail()));
    }
    records
}

fn ended(now: Timestamp, end: &End, grant: &Grant) -> Record {
    let (reason, message) = (end_reason(end), end_message(end));
    grant.record(now, end.action(), Decision::End, reason, message)
}

/// Returns the plan for a request with an end in its status: it deletes the remaining objects, and, after the
/// retention, the request.
#[must_use]
pub fn over(
    now: Timestamp,
    request: &StoredRequest<'_>,
    live: &[Live],
    keep: KeepFinished,
) -> Plan {
    let until = status::kept_until(
        request.status,
        request.created(),
        keep.retention(request.status),
    );
    let live = objects::ours(request, live);
    let ended = status::kept_until(request.status, request.created(), SignedDuration::ZERO);
    let just_now = !has_come(now, after(ended, JUST_ENDED));
    let granted = request
        .status
        .is_some_and(|status| status.granted_at.is_some());
    // The Role is the last to go, and after it nobody looks.
    let role = GrantObjects::new(request, None).role();
    let plan =
        remove(request.marks(), &live).then((just_now && granted).then_some(Step::Look(role)));
    if request.metadata.deletion_timestamp.is_some() {
        plan
    } else if has_come(now, until) {
        plan.then([Step::DeleteSelf])
    } else {
        plan.wake_at(until)
    }
}

/// The time after the end of a request within which a pass checks whether its Role was deleted. It covers the pass that
/// deletes the Role, and saves a read for each old request at a start of the operator.
const JUST_ENDED: SignedDuration = SignedDuration::from_secs(60);

/// Returns the plan for the remaining objects of a deleted request, which may have been deleted while no operator was
/// running: its Role still carries the decision. `request` is the last known version, if this process observed the
/// deletion.
#[must_use]
pub fn orphaned(
    now: Timestamp,
    keys: &Keys,
    request: Option<&StoredRequest<'_>>,
    live: &[Live],
) -> Plan {
    let decided = live.iter().find_map(|live| decided_by(keys, request, live));
    // Marks can be forged, the sealed decision cannot: without it nothing here is known to be ours.
    let Some(grant) = decided else {
        return request.map_or_else(Plan::default, |request| undecided(now, keys, request, live));
    };
    let names = GrantObjects::of_grant(&grant);
    let mut live = objects::filter_by_name(names.namespace, &names.name, live);
    live.retain(|live| objects::is_proven(keys, &grant.request.uid, Some(&grant), live));
    let marks = Marks {
        kind: &grant.request.kind,
        uid: Uid::new(&grant.request.uid),
    };
    let end = End::of_gone(now, grant.window.until);
    // A Role that a finalizer keeps has had its record when its deletion began.
    let news = live.iter().any(|live| !revoke::is_leaving(live));
    let record = news.then(|| Step::Record(ended(now, &end, &grant)));
    let sessions = news.then(|| sessions::end(now, &end, &grant)).flatten();
    let (powerful, others) = by_power(&live);
    let plan = Plan::default()
        .then(disarm(marks, &live))
        .then(powerful)
        .then(unseen(&names, &live));
    let until = grant.window.until;
    if sessions::is_tried_long(now, until, until) {
        // Nothing remembers how often it was tried. It is tried once more, and the Role goes.
        let rest = sessions.into_iter().chain(others);
        return plan.then(record).then(rest);
    }
    plan.then(record.into_iter().chain(sessions)).then(others)
}

/// Returns the expiry of a grant: from the sealed decision that its Role and its RoleBinding carry, or, without one,
/// from the status of its request.
#[must_use]
pub fn lasts_until(
    keys: &Keys,
    request: Option<&StoredRequest<'_>>,
    live: &[Live],
) -> Option<Timestamp> {
    let sealed = live
        .iter()
        .filter_map(|live| decided_by(keys, request, live))
        .map(|grant| grant.window.until)
        .max();
    sealed.or_else(|| request?.remembers_until())
}

/// Returns the decision that an object carries, if it was sealed for this object.
fn decided_by(keys: &Keys, request: Option<&StoredRequest<'_>>, live: &Live) -> Option<Grant> {
    let metadata = &live.object.metadata;
    let uid = match request {
        Some(request) => request.uid(),
        None => labels::owner_uid(metadata)?,
    };
    let grant = Grant::open(keys, metadata, uid)?;
    let key = live.key();
    let is_at = grant.is_at(&key.kind, key.namespace.as_deref(), key.name.as_deref()?);
    is_at.then_some(grant)
}

/// Deletes the objects that another program created for a request that oz refuses. They have no label of oz, but an
/// owner reference to the request.
#[must_use]
pub fn taken_away(request: &StoredRequest<'_>, left: Option<&[Live]>) -> Plan {
    let mut left = objects::ours(request, left.unwrap_or(&[]));
    left.retain(|live| drift::is_owned(&live.object.metadata, request.uid()));
    let (powerful, others) = by_power(&left);
    Plan::default().then(powerful).then(others)
}

/// Returns the owner reference to the template, for a request that was created before its template.
#[must_use]
pub fn adoption(request: &ObjectMeta, kind: &str, template: &ObjectMeta) -> Option<OwnerReference> {
    let (name, uid) = (template.name.clone()?, template.uid.clone()?);
    // An object has one controller at most.
    let taken = request
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.uid == uid || owner.controller == Some(true));
    (!taken).then(|| OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: kind.to_owned(),
        name,
        uid,
        controller: Some(true),
        block_owner_deletion: None,
    })
}

/// The result of a plan, as far as an end depends on it.
#[derive(Clone, Copy, Debug)]
pub struct CleanupResult<'a> {
    /// The failure that prevents the end of the request.
    pub failure: Option<&'a Failure>,
    /// The result of the termination of its sessions.
    pub sessions: Option<&'a SessionsEnded>,
}

/// Returns the status of a request that is ending. The request has ended when none of its objects gives access and the
/// audit record is written; `failure` means that one of these is missing.
#[must_use]
pub fn finish(
    now: Timestamp,
    request: &StoredRequest<'_>,
    facts: Vec<Fact>,
    end: &End,
    grant: Option<&Grant>,
    live: &[Live],
    cleanup: CleanupResult<'_>,
) -> RequestStatus {
    let CleanupResult {
        failure,
        sessions: ended,
    } = cleanup;
    let before = request.status.and_then(|status| status.ending.as_ref());
    let mut ending = end.ending(before, now);
    ending.sessions_ended |= ended.is_some();
    let ours = objects::ours(request, live);
    let lasting = failure.filter(|failure| failure.reason == NOT_ENDED);
    let until = match grant {
        Some(grant) => Some(grant.window.until),
        None => request.status.and_then(|status| status.expires_at),
    };
    let since = ending.since.unwrap_or(now);
    // The next pass puts it on record, and then it is over.
    let given_up = lasting.filter(|_| sessions::is_tried_long(now, until.unwrap_or(since), since));
    ending.sessions_abandoned |= given_up.is_some();
    let over =
        lasting.is_none() && !ours.iter().any(revoke::still_gives_access) && failure.is_none();
    let (reason, message) = (end_reason(end), end_message(end));
    let invalid = Fact::fails(conditions::ACCESS_STILL_VALID, reason, message);
    let of_sessions = match ended {
        Some(ended) => Some(sessions::ended(ended)),
        None => given_up.map(sessions::given_up),
    };
    let facts = facts.into_iter().chain([invalid]).chain(of_sessions);
    let mut status = status::with_facts(now, request.metadata, request.status, facts);
    if let Some(grant) = grant {
        status::describe(&mut status, grant);
    }
    let waits = (!over && (failure.is_none() || lasting.is_some()))
        .then(|| lasting.map_or_else(status::ending, status::sessions_last));
    let shared = grant.is_none_or(|grant| grant.own_pod.is_none());
    let unusable = status::unusable(&status.conditions, end, over, shared, waits.clone());
    status = status::with_facts(now, request.metadata, Some(&status), unusable);
    if over {
        status.phase = end.phase();
        ending.recorded = true;
    } else if waits.is_some() {
        (ending.recorded, ending.sessions_may_continue) = (true, lasting.is_some());
    }
    status.ending = Some(ending);
    status.ready = false;
    status
}
