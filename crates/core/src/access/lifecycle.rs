//! How a request ends and is kept and goes, the same for every kind of request.
//!
//! Ending: what gives access, the record, the status; what carries the sealed decision goes last,
//! in a pass of its own, so that until the status says that it is over there is something left
//! that knows what was granted.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

use super::grant::Grant;
use super::objects;
use super::request::Request;
use super::seal::Keys;
use super::status::{self, End, Fact};
use crate::api::{GROUP, RequestStatus, VERSION};
use crate::audit::{Action, Decision, Record};
use crate::conditions::{self, reason};
use crate::controller::{Failure, Live, Plan, Step};
use crate::labels;

/// The record of a grant.
#[must_use]
pub fn granted(now: Timestamp, grant: &Grant) -> Record {
    let message = format!(
        "{} may use pod {} until {}",
        grant.requester.user, grant.pod.name, grant.window.until
    );
    grant.record(
        now,
        Action::AccessGranted,
        Decision::Allow,
        reason::SUCCESS,
        message,
    )
}

/// How often a pod that should have ended long ago is looked at, should no event tell of it.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// The plan for a request that must end now.
#[must_use]
pub fn ending(
    now: Timestamp,
    request: &Request<'_>,
    end: &End,
    grant: Option<&Grant>,
    live: &[Live],
) -> Plan {
    let records = if status::is_ending(request.status) {
        Vec::new()
    } else {
        records(now, request, end, grant)
    };
    let (powerful, _) = by_power(live);
    let waiting = powerful.is_empty() && live.iter().any(objects::still_gives_access);
    let plan = Plan::default()
        .then(powerful)
        .then(records.into_iter().map(Step::Record))
        .wake_at(if waiting {
            // An event tells when the pod has ended.
            now.checked_add(LOOK_AGAIN).unwrap_or(Timestamp::MAX)
        } else {
            now
        });
    match end.obstacle() {
        Some(obstacle) => plan.because(obstacle),
        None => plan,
    }
}

fn records(now: Timestamp, request: &Request<'_>, end: &End, grant: Option<&Grant>) -> Vec<Record> {
    let mut records = Vec::new();
    match (end, grant) {
        (End::Drift(what), Some(grant)) => {
            records.push(grant.record(
                now,
                Action::DriftDetected,
                Decision::End,
                end.reason(),
                what,
            ));
        }
        (End::Drift(what), None) => {
            // The decision is lost with the object that carried it; the status remembers for people.
            let mut record = request.record(
                now,
                Action::DriftDetected,
                Decision::End,
                end.reason(),
                what,
            );
            record.until = request.status.and_then(|status| status.expires_at);
            records.push(record);
        }
        _ => {}
    }
    if let Some(grant) = grant {
        records.push(ended(now, end, grant));
    }
    records
}

fn ended(now: Timestamp, end: &End, grant: &Grant) -> Record {
    let action = match end {
        End::Expired => Action::AccessExpired,
        End::Deleted | End::TemplateChanged | End::Drift(_) | End::NotReady(_) => {
            Action::AccessRevoked
        }
    };
    grant.record(now, action, Decision::End, end.reason(), end.message())
}

/// The plan for a request whose status says that it ended: nothing of it may be left, and after
/// `keep` it goes itself.
#[must_use]
pub fn over(now: Timestamp, request: &Request<'_>, live: &[Live], keep: SignedDuration) -> Plan {
    let until = status::kept_until(request.status, request.created(), keep);
    let plan = remove(Plan::default(), live);
    if request.metadata.deletion_timestamp.is_some() {
        plan
    } else if now >= until {
        plan.then([Step::DeleteSelf])
    } else {
        plan.wake_at(until)
    }
}

/// The plan for what is left of a request that was deleted, perhaps while nobody watched: its Role
/// still knows what was granted.
#[must_use]
pub fn orphaned(now: Timestamp, keys: &Keys, live: &[Live]) -> Plan {
    let grant = live
        .iter()
        .filter_map(Live::parse::<Role>)
        .find_map(|role| {
            let uid = role.labels().get(labels::OWNER_UID)?.clone();
            Grant::open(keys, &role.metadata, &uid)
        });
    let record = grant.map(|grant| {
        let end = if grant.window.is_over(now) {
            End::Expired
        } else {
            End::Deleted
        };
        Step::Record(ended(now, &end, &grant))
    });
    let (powerful, others) = by_power(live);
    Plan::default().then(powerful).then(record).then(others)
}

/// Deletes what gives access first, what only tells of it second.
fn remove(plan: Plan, live: &[Live]) -> Plan {
    let (powerful, others) = by_power(live);
    plan.then(powerful).then(others)
}

/// Deletions, of what gives access and of the rest. What is leaving anyway is left alone.
fn by_power(live: &[Live]) -> (Vec<Step>, Vec<Step>) {
    let (powerful, others): (Vec<_>, Vec<_>) = live
        .iter()
        .filter(|live| !objects::is_leaving(live))
        .partition(|live| objects::gives_access(live));
    let delete = |live: Vec<&Live>| {
        live.into_iter()
            .map(|live| Step::Delete(live.reference()))
            .collect()
    };
    (delete(powerful), delete(others))
}

/// The owner reference that ties a request to its template, if it was created before it.
#[must_use]
pub fn adoption(request: &ObjectMeta, kind: &str, template: &ObjectMeta) -> Option<OwnerReference> {
    let uid = template.uid.clone()?;
    let owners = request.owner_references.as_deref().unwrap_or_default();
    // An object has one controller at most.
    let taken = owners
        .iter()
        .any(|owner| owner.uid == uid || owner.controller == Some(true));
    (!taken).then(|| OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: kind.to_owned(),
        name: template.name.clone().unwrap_or_default(),
        uid,
        controller: Some(true),
        block_owner_deletion: None,
    })
}

/// The status of a request that is ending: over only when nothing of it gives access any more and
/// that is on record, which `failure` stands against.
#[must_use]
pub fn finish(
    now: Timestamp,
    request: &Request<'_>,
    facts: Vec<Fact>,
    end: &End,
    grant: Option<&Grant>,
    live: &[Live],
    failure: Option<&Failure>,
) -> RequestStatus {
    let over = !live.iter().any(objects::still_gives_access) && failure.is_none();
    let invalid = Fact::fails(conditions::ACCESS_STILL_VALID, end.reason(), end.message());
    let facts = facts.into_iter().chain([invalid]);
    let mut status = status::with_facts(now, request.metadata, request.status, facts);
    if let Some(grant) = grant {
        status::describe(&mut status, grant);
    }
    if over {
        status.phase = end.phase();
        if status::is_ending(Some(&status)) {
            status = status::with_facts(now, request.metadata, Some(&status), [status::ended()]);
        }
    } else if failure.is_none() {
        let ending = [status::ending()];
        status = status::with_facts(now, request.metadata, Some(&status), ending);
    }
    status.ready = false;
    status
}
