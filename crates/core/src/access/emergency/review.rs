//! Reviews of emergencies and of break-glass: their creation from audit records, the users who may write a
//! finding, and their further states. The seal on a review, over its whole content, is its only proof: the
//! operator seals the reviews that it opens and keeps, the webhook seals a finding with its author.
//! See docs/adr/0029-a-review-is-made-of-the-record.md.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{
    AccessReview, Name, Namespace, RecordsSoFar, Requester, ReviewStatus, Reviewed, Reviewers,
    conditions, encode, labels,
};
use oz_trail::{Action, Decision, Record, RequestRef};
use serde::{Deserialize, Serialize};

use super::super::denial::Denial;
use super::super::person::{is_listed, is_same_person};
use super::reviewers_named;
use crate::kinds::Kind as _;
use crate::lifecycle::seal::{self, Keys, Purpose, SealError};
use crate::lifecycle::window::{after, has_come};

/// The reason of a review without a finding at its deadline.
pub const OVERDUE: &str = "DeadlineExceeded";
/// The reason of a review that was overdue, and now has a finding.
pub const REVIEWED: &str = "Reviewed";

/// The content of the seal on a review.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sealed {
    namespace: String,
    name: String,
    /// Digest of the whole spec.
    spec: String,
    #[serde(flatten)]
    standing: ReviewState,
}

/// The state of a review, as its seal proves it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewState {
    /// Author of the finding; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Requester>,
    /// Time of the finding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// Returns the audit records of a request for a review, from the names of their objects.
#[must_use]
pub fn records_so_far(mut names: Vec<String>) -> RecordsSoFar {
    names.sort_unstable();
    RecordsSoFar {
        count: i64::try_from(names.len()).unwrap_or(i64::MAX),
        digest: encode::digest(&names),
    }
}

/// Seals a review in its current state.
///
/// # Errors
/// If it has no name or no namespace, or does not serialise, which its types rule out.
pub fn put_seal(
    keys: &Keys,
    review: &mut AccessReview,
    standing: ReviewState,
) -> Result<(), SealError> {
    let by = standing.by.as_ref().map(|by| by.user.clone());
    let purpose = match by {
        Some(_) => Purpose::Finding,
        None => Purpose::Review,
    };
    let text = sealed(keys, purpose, review, standing)?;
    let annotations = review.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::REVIEW.to_owned(), text);
    if let Some(by) = by {
        annotations.insert(labels::REVIEWED_BY.to_owned(), by);
    }
    Ok(())
}

fn sealed(
    keys: &Keys,
    purpose: Purpose,
    review: &AccessReview,
    standing: ReviewState,
) -> Result<String, SealError> {
    let metadata = &review.metadata;
    let sealed = Sealed {
        namespace: Namespace::from_metadata(metadata)?.to_string(),
        name: Name::from_metadata(metadata)?.to_string(),
        spec: review.spec_digest(),
        standing,
    };
    seal::seal(keys, purpose, &sealed)
}

/// Returns the seal of a review as it is written.
#[must_use]
pub fn seal_of(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(labels::REVIEW).map(String::as_str)
}

/// Reads the state of a review; `None` if oz did not create it, or it was changed since it was sealed.
#[must_use]
pub fn read(keys: &Keys, review: &AccessReview) -> Option<ReviewState> {
    let text = seal_of(&review.metadata)?;
    let by_webhook = || {
        let sealed: Sealed = seal::open(keys, Purpose::Finding, text).ok()?;
        sealed.standing.by.is_some().then_some(sealed)
    };
    let by_operator = seal::open(keys, Purpose::Review, text).ok();
    let sealed: Sealed = by_operator.or_else(by_webhook)?;
    let metadata = &review.metadata;
    let is_this = Some(&sealed.namespace) == metadata.namespace.as_ref()
        && Some(&sealed.name) == metadata.name.as_ref()
        && sealed.spec == review.spec_digest();
    let whole = sealed.standing.by.is_some() == review.spec.is_written()
        && sealed.standing.by.is_some() == sealed.standing.at.is_some();
    (is_this && whole).then_some(sealed.standing)
}

/// Returns the requester of the reviewed access.
#[must_use]
pub fn requester(review: &AccessReview) -> Requester {
    let Reviewed { user, uid } = review.spec.requester.clone();
    Requester {
        user,
        uid,
        groups: Vec::new(),
    }
}

/// Checks whether a user is a reviewer, and neither requested nor used the reviewed access.
#[must_use]
pub fn is_reviewer(review: &AccessReview, person: &Requester) -> bool {
    let reviewers = &review.spec.reviewers;
    // RBAC decides whether they may write it at all.
    let anybody = is_open_to_all(review) && person.service_account().is_none();
    (anybody || is_listed(&reviewers.groups, &reviewers.users, person))
        && !is_same_person(&requester(review), person)
}

/// Checks whether no reviewers are named, so that each user who may write reviews there is one.
fn is_open_to_all(review: &AccessReview) -> bool {
    review.spec.break_glass.is_some() && review.spec.reviewers == Reviewers::default()
}

/// Lists the reviewers in words.
fn who_may(review: &AccessReview) -> String {
    match is_open_to_all(review) {
        true => "all users with the ClusterRole oz-review-access there".to_owned(),
        false => reviewers_named(&review.spec.reviewers),
    }
}

/// Describes the reviewed access in words.
#[must_use]
pub fn subject_named(review: &AccessReview) -> String {
    let user = &review.spec.requester.user;
    match (&review.spec.break_glass, &review.spec.attestation) {
        (Some(window), _) => format!(
            "the use of break-glass by {user} from {} until {}",
            window.from, window.until
        ),
        (None, Some(_)) => "an attestation of entitlements".to_owned(),
        (None, None) => format!("the emergency of {user}"),
    }
}

/// Checks whether `person` may write the finding of `new` into the review `old`.
///
/// # Errors
/// A [`Denial`] with the reason and the next step.
pub fn may(
    keys: &Keys,
    person: &Requester,
    old: &AccessReview,
    new: &AccessReview,
    now: Timestamp,
) -> Result<(), Denial> {
    let name = Name::from_metadata(&old.metadata)?;
    is_writable(keys, (old, name), new, now)?;
    is_by_reviewer(person, (old, name))
}

/// Checks whether the review is as oz sealed it, has no finding, and `new` adds one.
fn is_writable(
    keys: &Keys,
    (old, name): (&AccessReview, Name<'_>),
    new: &AccessReview,
    now: Timestamp,
) -> Result<(), Denial> {
    let denied = |reason, why: String| Err(Denial::new(reason, why));
    if new.spec.opened() != old.spec.opened() {
        let why = format!(
            "the subject of review {name} is immutable: write spec.finding and spec.reason"
        );
        return denied("Immutable", why);
    }
    let Some(standing) = read(keys, old) else {
        let why = format!(
            "review {name} has no valid seal of oz, so a finding would not count; have an \
             administrator check it"
        );
        return denied("ReviewForged", why);
    };
    if let Some(by) = standing.by {
        let why = format!(
            "{} wrote review {name} already, and a finding is immutable",
            by.user
        );
        return denied("AlreadyReviewed", why);
    }
    if new.spec.finding.is_none() {
        let why = format!(
            "review {name} needs a finding: set spec.finding to Justified, Unjustified or FollowUp, and \
             spec.reason"
        );
        return denied("FindingMissing", why);
    }
    match &old.spec.break_glass {
        Some(window) if !has_come(now, window.until) => {
            let why = format!(
                "review {name} is about the use of break-glass by {} until {}; write it after that",
                old.spec.requester.user, window.until
            );
            denied("ReviewWindowOpen", why)
        }
        _ => Ok(()),
    }
}

/// Checks whether the author is a reviewer.
fn is_by_reviewer(
    person: &Requester,
    (old, name): (&AccessReview, Name<'_>),
) -> Result<(), Denial> {
    let denied = |reason, why: String| Err(Denial::new(reason, why));
    let asked = requester(old);
    if is_same_person(&asked, person) {
        let (did, reason) = match old.spec.break_glass {
            Some(_) => ("used break-glass", "SelfReview"),
            None => ("requested this emergency", "SelfReview"),
        };
        let why = format!(
            "{} {did} themselves; another reviewer is required ({})",
            asked.user,
            who_may(old)
        );
        return denied(reason, why);
    }
    if !is_reviewer(old, person) {
        let account = match person.service_account() {
            Some(_) => "; a service account counts only by its own name, in users",
            None => "",
        };
        let why = format!(
            "{} is not a reviewer of {name} ({}){account}; ask a reviewer",
            person.user,
            who_may(old)
        );
        return denied("NotAReviewer", why);
    }
    Ok(())
}

/// The next step for a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// The review has no finding at its deadline: the operator records that, and its status reports it.
    Overdue,
    /// The review was overdue and has a finding: its status reports it.
    Settled,
    /// The key of its seal will be removed: this is its seal with the key that stays.
    Sealed(String),
    /// The finding is old enough for the deletion of the review.
    Over,
}

/// Checks whether a review has no finding at its deadline.
#[must_use]
pub fn is_overdue(review: &AccessReview, standing: &ReviewState, now: Timestamp) -> bool {
    standing.by.is_none() && has_come(now, review.spec.due_at)
}

/// Returns the next step for a review of oz with this `standing`; a review with a finding is kept for `keep`
/// after that.
#[must_use]
pub fn upkeep(
    keys: &Keys,
    review: &AccessReview,
    standing: &ReviewState,
    now: Timestamp,
    keep: SignedDuration,
) -> Option<Upkeep> {
    if review.metadata.deletion_timestamp.is_some() {
        return None;
    }
    if standing.at.is_some_and(|at| has_come(now, after(at, keep))) {
        return Some(Upkeep::Over);
    }
    let status = review.status.as_ref();
    let told =
        status.is_some_and(|status| conditions::is_true(&status.conditions, conditions::OVERDUE));
    match (told, is_overdue(review, standing, now)) {
        (false, true) => return Some(Upkeep::Overdue),
        (true, _) if standing.by.is_some() => return Some(Upkeep::Settled),
        _ => {}
    }
    // The operator immediately seals again what the webhook sealed, so that the seal outlives the webhook's
    // key.
    let text = seal_of(&review.metadata);
    if text.is_some_and(|text| seal::is_by_newest(keys, Purpose::Review, text)) {
        return None;
    }
    let again = sealed(keys, Purpose::Review, review, standing.clone()).ok()?;
    Some(Upkeep::Sealed(again))
}

/// Returns the status that reports whether a review is overdue.
#[must_use]
pub fn status(review: &AccessReview, overdue: bool, now: Timestamp) -> ReviewStatus {
    let mut status = review.status.clone().unwrap_or_default();
    let (reason, message) = if overdue {
        let mut what = subject_named(review);
        if let Some(about) = &review.spec.access_request_ref {
            what.push_str(&format!(" ({} {})", about.kind, about.name));
        }
        let waits = format!(
            "the review of {what} is overdue since {}; reviewers: {}",
            review.spec.due_at,
            who_may(review)
        );
        (OVERDUE, waits)
    } else {
        (
            REVIEWED,
            "the review was written after it was due".to_owned(),
        )
    };
    let generation = review.metadata.generation;
    conditions::set(
        &mut status.conditions,
        conditions::OVERDUE,
        overdue,
        reason,
        message,
        generation,
        now,
    );
    status
}

/// Creates an audit record of an event of a review, which may not be stored yet.
#[must_use]
pub fn record(
    review: &AccessReview,
    now: Timestamp,
    action: Action,
    decision: Decision,
    reason: &str,
    message: impl Into<String>,
) -> Record {
    // If there is no request, the review itself is the only named object.
    let mut reference = RequestRef::new_object(AccessReview::title(), &review.metadata);
    if let Some(about) = &review.spec.access_request_ref {
        reference = RequestRef {
            kind: about.kind.to_string(),
            name: about.name.clone(),
            uid: about.uid.clone(),
            ..reference
        };
    }
    if let Some(reviewed) = review.reviewed_namespace() {
        reviewed.clone_into(&mut reference.namespace);
    }
    let record = Record::about(now, action, decision, &reference.uid, reason, message);
    let record = Record {
        template: review.spec.template.clone(),
        request: reference,
        ..record
    };
    match &review.spec.attestation {
        Some(attestation) => record
            .detail("entitlements", attestation.entitlements.clone())
            .detail("file", attestation.file.clone())
            .detail("kept", attestation.kept.to_string())
            .detail("removed", attestation.removed.to_string())
            .detail("gaps", attestation.gaps.to_string()),
        None => record
            .detail("requester", review.spec.requester.user.clone())
            .detail("dueAt", review.spec.due_at.to_string()),
    }
}

/// Creates the audit record of an overdue review.
#[must_use]
pub fn overdue(review: &AccessReview, now: Timestamp) -> Record {
    let message = format!(
        "the review of {} was not written until {}; reviewers: {}",
        subject_named(review),
        review.spec.due_at,
        who_may(review)
    );
    let (action, note) = (Action::ReviewOverdue, Decision::Note);
    record(review, now, action, note, OVERDUE, message)
}
