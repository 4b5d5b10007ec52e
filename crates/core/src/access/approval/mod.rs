//! Who agrees: the answers that others gave to a request, what they come to ([`decide`]), and who may give
//! one ([`admission`]). The operator asks before it grants, the webhook when an answer is created, the
//! command line to say what is missing.

pub mod admission;
mod candidate;
pub mod decide;
pub mod matching;
mod stage;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use oz_api::duration::GoDuration;
use oz_api::{AccessLock, AccessRequestApproval, ApprovalConfig, ApprovalRule, Requester, encode};
use serde_json::json;

use super::grant::Approved;
use super::lock::{self, Access, Locks};
use super::stamp::{self, StampError};
use crate::kinds::Kind as _;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::after;

pub use super::person::{is_listed, is_same_person};
pub use candidate::Candidate;
pub use decide::{Missing, Verdict, decide};
pub(crate) use stage::{Approvals, confirmed, fact, request_of, settled};
pub use stage::{DENIED, WAITING};
pub(super) use stage::{of, requested};

/// What those who answer are asked.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// Who wants access.
    pub requester: &'a Requester,
    /// Who has to agree.
    pub config: &'a ApprovalConfig,
    /// What an answer must name.
    pub digest: String,
    /// The instant from which on nothing counts any more.
    pub until: Timestamp,
}

impl<'a> Asked<'a> {
    /// What is asked of others by a template whose spec has this digest, or by policies about what has none and
    /// whose own digest this is; `None` if nothing is said that makes sense of how long they have, and of an
    /// emergency nobody is asked.
    #[must_use]
    pub fn of(
        candidate: &Candidate<'_>,
        requester: &'a Requester,
        template_digest: &str,
        config: &'a ApprovalConfig,
    ) -> Option<Self> {
        if candidate.emergency {
            return None;
        }
        let timeout: GoDuration = config.timeout.parse().ok()?;
        Some(Self {
            requester,
            config,
            digest: digest(candidate, template_digest, config),
            until: after(candidate.created(), timeout),
        })
    }
}

/// Digest of what is asked: of the request and its stamp, of the template and of the rules.
#[must_use]
pub fn digest(candidate: &Candidate<'_>, template_digest: &str, config: &ApprovalConfig) -> String {
    encode::digest(&json!({
        "request": candidate.reference(),
        "stamp": stamp::of(candidate.metadata),
        "template": template_digest,
        "rules": config,
    }))
}

/// One answer, as it was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Name of the object.
    pub name: String,
    /// Who gave it.
    pub by: Requester,
    /// Whether it approves.
    pub approves: bool,
    /// Why.
    pub reason: Option<String>,
    /// What was seen.
    pub digest: String,
    /// When it was given.
    pub at: Timestamp,
    /// When the lock ends that keeps it from counting; `None` if there is none, or if it ends by nothing but somebody.
    pub locked_until: Option<Timestamp>,
}

impl Answer {
    /// Reads an answer to this; `None` if it is about another.
    ///
    /// # Errors
    /// Why it is not believed.
    pub fn read(
        keys: &Keys,
        object: &AccessRequestApproval,
        candidate: &Candidate<'_>,
    ) -> Option<Result<Self, StampError>> {
        if !is_about(object, candidate) {
            return None;
        }
        let kind = AccessRequestApproval::title();
        let stamp = stamp::open(keys, kind, &object.metadata, &object.spec_digest());
        Some(stamp.map(|stamp| Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            by: stamp.requester,
            approves: object.spec.approval,
            reason: object.spec.reason.clone(),
            digest: object.spec.digest.clone(),
            at: stamp.at,
            locked_until: None,
        }))
    }
}

/// The answers to this among `objects` that are believed. Those of somebody who is locked out by now are kept as
/// if they were given to something else: they count for nothing, and still tell which names are one person's.
#[must_use]
pub fn answers<'a>(
    keys: &Keys,
    objects: impl IntoIterator<Item = &'a AccessRequestApproval>,
    candidate: &Candidate<'_>,
    locks: &Locks,
    now: Timestamp,
) -> Vec<Answer> {
    let objects = objects.into_iter();
    let believed = objects.filter_map(|object| Answer::read(keys, object, candidate)?.ok());
    let counted = believed.map(|mut answer| {
        let access = Access::bound(&answer.by, &[], candidate.answered_in);
        if let Some(lock) = locks.against(&access, now) {
            answer.digest.clear();
            answer.locked_until = lock.until();
        }
        answer
    });
    counted.collect()
}

/// Whether a lock is about whoever gave this answer, so that it counts no more, or again, when the lock was made,
/// changed or removed. One that is not believed counts for nothing either way.
#[must_use]
pub fn is_concerned_by(object: &AccessRequestApproval, lock: &AccessLock, keys: &Keys) -> bool {
    let kind = AccessRequestApproval::title();
    let by = stamp::verify(keys, kind, &object.metadata, &object.spec_digest());
    let namespace = object.metadata.namespace.as_deref();
    by.is_ok_and(|by| lock::is_about(lock, &Access::bound(&by, &[], namespace)))
}

/// Whether an answer names this, by its UID, and is where answers to it are.
#[must_use]
pub fn is_about(object: &AccessRequestApproval, candidate: &Candidate<'_>) -> bool {
    let reference = &object.spec.access_request_ref;
    reference.uid == candidate.uid()
        && !reference.uid.is_empty()
        && <&str>::from(reference.kind) == candidate.kind
        && Some(&reference.name) == candidate.metadata.name.as_ref()
        && object.metadata.namespace.as_deref() == candidate.answered_in
}

/// Whether somebody is among those whom a rule names. A service account is only by its own name.
#[must_use]
pub fn is_named(rule: &ApprovalRule, person: &Requester) -> bool {
    is_listed(&rule.groups, &rule.users, person)
}

/// Whether somebody could approve what is asked.
#[must_use]
pub fn may_approve(asked: &Asked<'_>, person: &Requester) -> bool {
    let named = |rule: &ApprovalRule| is_named(rule, person);
    !is_same_person(asked.requester, person) && asked.config.rules.iter().any(named)
}

/// Who approved under which rule, in words.
#[must_use]
pub fn approvers(approved: &[Approved]) -> String {
    let each = approved
        .iter()
        .map(|one| format!("{} ({})", one.user, one.rule));
    each.collect::<Vec<_>>().join(", ")
}
