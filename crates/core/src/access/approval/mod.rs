//! Approvals: the approvals and denials of other users for a request, their result ([`decide`](decide())), and the
//! users who may create them ([`admission`]). The operator evaluates them before it grants, the webhook when
//! one is created, the command line to show the missing ones.

pub mod admission;
mod candidate;
pub mod decide;
pub mod escalation;
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
use super::person::bound_user;
use super::stamp::{self, StampError};
use crate::kinds::Kind as _;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::after;

pub use super::person::{is_listed, is_same_person};
pub use candidate::Candidate;
pub use decide::{Missing, Verdict, decide};
pub(crate) use stage::settled;
pub use stage::{Approvals, DENIED, WAITING, confirmed, fact, request_of, shown};
pub(super) use stage::{evaluate, granted, requested};

/// The question that approvers decide.
#[derive(Clone, Debug)]
pub struct ApprovalRequest<'a> {
    /// User who requests access.
    pub requester: &'a Requester,
    /// The users that the subjects of a transient binding name. Members of its groups are not among them: a group can
    /// contain all approvers.
    pub bound: Vec<Requester>,
    /// Required approvals.
    pub config: &'a ApprovalConfig,
    /// Digest that an approval must name.
    pub digest: String,
    /// Creation of the request, from which the escalation of rules counts.
    pub created: Timestamp,
    /// Instant from which on no approval counts.
    pub until: Timestamp,
}

impl<'a> ApprovalRequest<'a> {
    /// Returns the question about a request by a template of which the spec has this digest, or about an
    /// object without a template, which has this digest itself; `None` if the timeout is not valid, and for
    /// an emergency, which requires no approvals.
    #[must_use]
    pub fn from_candidate(
        candidate: &Candidate<'_>,
        requester: &'a Requester,
        template_digest: &str,
        config: &'a ApprovalConfig,
    ) -> Option<Self> {
        if candidate.emergency {
            return None;
        }
        let timeout: GoDuration = config.timeout.parse().ok()?;
        let users = candidate.subjects.iter().filter_map(bound_user);
        let bound = users.map(|user| Requester {
            user: user.into_owned(),
            ..Requester::default()
        });
        Some(Self {
            requester,
            bound: bound.collect(),
            config,
            digest: digest(candidate, template_digest, config),
            created: candidate.identity.created,
            until: after(candidate.identity.created, timeout),
        })
    }

    /// Returns the users who may not approve: the requester, and those who get the access.
    fn excluded(&self) -> impl Iterator<Item = &Requester> {
        std::iter::once(self.requester).chain(&self.bound)
    }
}

/// Returns the digest of the question: of the request and its stamp, of the template and of the rules.
#[must_use]
pub fn digest(candidate: &Candidate<'_>, template_digest: &str, config: &ApprovalConfig) -> String {
    encode::digest(&json!({
        "request": candidate.reference(),
        "stamp": stamp::read(candidate.metadata),
        "template": template_digest,
        "rules": config,
    }))
}

/// An approval or denial, as it was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Name of the object.
    pub name: String,
    /// Author.
    pub by: Requester,
    /// Whether the author approves.
    pub approves: bool,
    /// Reason.
    pub reason: Option<String>,
    /// Digest of the approved or denied question.
    pub digest: String,
    /// Time of creation.
    pub at: Timestamp,
    /// The expiry of the lock that makes it invalid; `None` if there is no lock, or if the lock has no
    /// expiry.
    pub locked_until: Option<Timestamp>,
}

impl Answer {
    /// Reads an approval or denial of this object; `None` if it concerns another.
    ///
    /// # Errors
    /// The reason why it is not accepted.
    pub fn read(
        keys: &Keys,
        object: &AccessRequestApproval,
        candidate: &Candidate<'_>,
    ) -> Option<Result<Self, StampError>> {
        if !is_about(object, candidate) {
            return None;
        }
        let name = object.metadata.name.clone()?;
        let kind = AccessRequestApproval::title();
        let stamp = stamp::open(keys, kind, &object.metadata, &object.spec_digest());
        Some(stamp.map(|stamp| Self {
            name,
            by: stamp.requester,
            approves: object.spec.approval,
            reason: object.spec.reason.clone(),
            digest: object.spec.digest.clone(),
            at: stamp.at,
            locked_until: None,
        }))
    }
}

/// Returns the accepted approvals and denials of this object among `objects`. Those of a user who is locked
/// now are treated like those for another question: they do not count, but still show which names belong to
/// one person.
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
        let access = access(&answer.by, candidate.answered_in);
        if let Some(lock) = locks.against(&access, now) {
            answer.digest.clear();
            answer.locked_until = lock.until();
        }
        answer
    });
    counted.collect()
}

/// Returns the access to approvals and denials in a namespace, as locks select it: those of cluster-wide bindings are in
/// oz's own.
#[must_use]
pub fn access<'a>(author: &'a Requester, answered_in: Option<&'a str>) -> Access<'a> {
    Access::bound(author, &[], answered_in)
}

/// Checks whether a lock affects the author of this approval or denial, so that it no longer counts, or
/// counts again, when the lock was created, changed or removed. One that is not accepted never counts.
#[must_use]
pub fn is_concerned_by(object: &AccessRequestApproval, lock: &AccessLock, keys: &Keys) -> bool {
    let kind = AccessRequestApproval::title();
    let by = stamp::verify(keys, kind, &object.metadata, &object.spec_digest());
    let namespace = object.metadata.namespace.as_deref();
    by.is_ok_and(|by| lock::is_about(lock, &access(&by, namespace)))
}

/// Checks whether an approval or denial names this object, by its UID, and is in the namespace for it.
#[must_use]
pub fn is_about(object: &AccessRequestApproval, candidate: &Candidate<'_>) -> bool {
    let reference = &object.spec.access_request_ref;
    candidate.identity.uid == reference.uid.as_str()
        && <&str>::from(reference.kind) == candidate.kind
        && candidate.identity.name == reference.name.as_str()
        && object.metadata.namespace.as_deref() == candidate.answered_in
}

/// Checks whether a rule names a user. It names a service account only by the account's own name.
#[must_use]
pub fn is_named(rule: &ApprovalRule, person: &Requester) -> bool {
    is_listed(&rule.groups, &rule.users, person)
}

/// Checks whether a user could approve the request at this instant.
#[must_use]
pub fn may_approve(asked: &ApprovalRequest<'_>, person: &Requester, at: Timestamp) -> bool {
    let named = |rule: &ApprovalRule| escalation::is_named_at(rule, person, asked.created, at);
    let is_own = asked.excluded().any(|own| is_same_person(own, person));
    !is_own && asked.config.rules.iter().any(named)
}

/// Lists the approvers with their rules in words.
#[must_use]
pub fn approvers(approved: &[Approved]) -> String {
    let each = approved
        .iter()
        .map(|one| format!("{} ({})", one.user, one.rule));
    each.collect::<Vec<_>>().join(", ")
}
