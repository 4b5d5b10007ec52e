//! The hook that checks whether a lock may be created, changed or removed.

use std::sync::Arc;

use kube::Resource as _;
use oz_admission::{Cx, Notes, Operation, Rejection, Review, Validate};
use oz_api::{AccessLock, AccessLockSpec};
use oz_audit::Sink;
use oz_core::access::lock::{self, may_change};
use oz_core::kinds::{Kind as _, Rules as _};
use oz_core::validate::{self, LockWhen, REQUEST_METADATA};
use oz_trail::{Action, Decision, Record, RequestRef};

use crate::record;
use crate::refusal::{bounded, denied, immutable, invalid};
use crate::stamp::requester;

/// The hook that checks operations on locks. RBAC and the API server's admission policy have
/// already allowed them.
pub(super) struct LockGuard {
    pub(super) records: Arc<dyn Sink>,
    /// The break-glass groups.
    pub(super) break_glass: Vec<String>,
}

impl Validate for LockGuard {
    type Object = AccessLock;

    async fn validate(&self, cx: &Cx, review: &Review<AccessLock>) -> Result<Notes, Rejection> {
        let (done, judged) = match (review.operation, &review.object, &review.old) {
            (Operation::Create, Some(lock), _) => (Done::Made(lock), made(cx, lock)),
            (Operation::Update, Some(lock), Some(old)) => {
                let judged = self.may_change(review, old);
                let judged = judged.and_then(|()| changed(cx, lock, old));
                if judged.is_ok() && lock.spec == old.spec {
                    return Ok(Notes::none());
                }
                (Done::Changed(lock, old), judged)
            }
            (Operation::Delete, _, Some(old)) => (Done::Removed(old), self.may_change(review, old)),
            _ => return Ok(Notes::none()),
        };
        if !cx.dry_run {
            self.record(cx, review, &done, judged.as_ref().err())
                .await?;
        }
        judged?;
        Ok(match done {
            Done::Made(lock) => warnings(&lock.spec),
            Done::Changed(..) | Done::Removed(_) => Notes::none(),
        })
    }
}

/// An operation on a lock.
enum Done<'a> {
    Made(&'a AccessLock),
    /// The new lock, then the old one.
    Changed(&'a AccessLock, &'a AccessLock),
    Removed(&'a AccessLock),
}

impl LockGuard {
    fn may_change(&self, review: &Review<AccessLock>, old: &AccessLock) -> Result<(), Rejection> {
        may_change(old, &requester(&review.user), &self.break_glass).map_err(denied)
    }

    /// Records the operation. One that grants access again waits for its audit record, except for a
    /// user of a break-glass group.
    async fn record(
        &self,
        cx: &Cx,
        review: &Review<AccessLock>,
        done: &Done<'_>,
        refusal: Option<&Rejection>,
    ) -> Result<(), Rejection> {
        let record = record_of(cx, review, done, refusal);
        let mends = |group: &String| self.break_glass.contains(group);
        let is_free = matches!(done, Done::Made(_)) || review.user.groups.iter().any(mends);
        if refusal.is_some() || is_free {
            record::write_if_possible(&*self.records, &record).await;
            return Ok(());
        }
        record::write(&*self.records, &record).await
    }
}

fn made(cx: &Cx, lock: &AccessLock) -> Result<(), Rejection> {
    bounded(&lock.metadata, None, &REQUEST_METADATA)?;
    valid(&lock.violations(cx.now))
}

/// Checks a change of a lock: only `until` may change.
fn changed(cx: &Cx, lock: &AccessLock, old: &AccessLock) -> Result<(), Rejection> {
    bounded(&lock.metadata, Some(&old.metadata), &REQUEST_METADATA)?;
    let but_for_until = |lock: &AccessLock| AccessLockSpec {
        until: None,
        ..lock.spec.clone()
    };
    if but_for_until(lock) != but_for_until(old) {
        let message = "only until can be changed: create another lock, then delete this one";
        return Err(immutable("spec", message));
    }
    // A lock that was stored without this hook stays as it is, and can be ended.
    if lock.spec == old.spec && lock.metadata.owner_references == old.metadata.owner_references {
        return Ok(());
    }
    valid(&validate::lock(
        &lock.metadata,
        &lock.spec,
        cx.now,
        LockWhen::Changed,
    ))
}

fn valid(violations: &[validate::Violation]) -> Result<(), Rejection> {
    if violations.is_empty() {
        return Ok(());
    }
    Err(invalid(AccessLock::title(), violations))
}

/// Returns warnings about names that look like others. Such names are not denied, as users have
/// them.
fn warnings(spec: &AccessLockSpec) -> Notes {
    let target = &spec.target;
    let names = target.user.iter().chain(&target.group);
    names.fold(Notes::none(), |notes, name| {
        if name.is_ascii() {
            return notes;
        }
        notes.warn(format!(
            "{name} has letters that are not ASCII: the lock matches exactly that name, and no \
             name that looks alike ({})",
            escaped(name)
        ))
    })
}

/// Returns the name with each non-ASCII letter as `\u{…}`.
fn escaped(name: &str) -> String {
    let each = |letter: char| match letter.is_ascii() {
        true => letter.to_string(),
        false => letter.escape_unicode().to_string(),
    };
    name.chars().map(each).collect()
}

fn record_of(
    cx: &Cx,
    review: &Review<AccessLock>,
    done: &Done<'_>,
    refusal: Option<&Rejection>,
) -> Record {
    let user = &review.user.username;
    let (action, lock, (decision, reason, verb)) = match done {
        Done::Made(lock) => (
            Action::AccessLocked,
            lock,
            (Decision::Allow, "Created", "locked"),
        ),
        Done::Changed(lock, _) => (
            Action::AccessLocked,
            lock,
            (
                Decision::Allow,
                "Changed",
                "the expiry of the lock was changed:",
            ),
        ),
        Done::Removed(old) => (
            Action::AccessUnlocked,
            old,
            (Decision::End, "Removed", "unlocked"),
        ),
    };
    let target = lock::target(&lock.spec.target);
    let message = format!("{user} {verb} {target}");
    let (decision, reason, message) = match refusal {
        Some(refusal) => (Decision::Deny, &*refusal.reason, refusal.message.clone()),
        None => (decision, reason, message),
    };
    let mut record = Record::about(cx.now, action, decision, &review.uid, reason, message);
    record.user = Some(requester(&review.user));
    record.request = RequestRef {
        name: review.display_name().to_owned(),
        ..RequestRef::new_object(AccessLock::title(), lock.meta())
    };
    let until = |lock: &AccessLock| {
        lock.spec
            .until
            .clone()
            .unwrap_or_else(|| "it is removed".to_owned())
    };
    let record = record
        .detail("target", target)
        .detail("reason", lock.spec.reason.clone())
        .detail("until", until(lock))
        .detail("exceptEmergency", lock.spec.except_emergency.to_string());
    match done {
        Done::Changed(_, old) => record.detail("before", until(old)),
        Done::Made(_) | Done::Removed(_) => record,
    }
}
