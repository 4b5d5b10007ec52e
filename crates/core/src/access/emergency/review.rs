//! Reviews of emergencies: how one is made of a record, who may write what they found, and what becomes of one
//! with time. A review is believed by the seal on it alone, over all that it says: the operator seals what it
//! opens, the webhook seals what is found with who found it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::super::denial::Denial;
use super::super::grant::object_name;
use super::super::person::{is_listed, is_same_person};
use super::super::stamp::Requester;
use super::{OnRecord, reviewers_named};
use crate::api::{
    AccessRequestReference, AccessReview, AccessReviewSpec, RecordsSoFar, ReviewStatus, Reviewed,
};
use crate::audit::{Action, Decision, Record, RequestRef};
use crate::conditions;
use crate::encode;
use crate::kinds::Kind as _;
use crate::labels;
use crate::lifecycle::seal::{self, Keys, SealError};
use crate::lifecycle::window::{after, has_come};

const PURPOSE: &str = "oz.wizardofoz.co/review/v1";

/// Reason of a review that nobody wrote in time.
pub const OVERDUE: &str = "NotReviewedInTime";
/// Reason of one that was overdue, and is written.
pub const REVIEWED: &str = "Reviewed";

/// What the seal on a review covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sealed {
    namespace: String,
    name: String,
    /// Digest of the whole spec.
    spec: String,
    #[serde(flatten)]
    standing: Standing,
}

/// How far a review has come, as its seal proves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Who wrote what they found; `None` if nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Requester>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// The name of the review of a request.
#[must_use]
pub fn name_of(request: &RequestRef) -> String {
    object_name(&request.name, &request.uid)
}

/// The review of an emergency; `None` if the request is of no kind that is reviewed.
///
/// # Errors
/// Only if it does not serialise, which its types rule out.
pub fn opened(
    keys: &Keys,
    found: &OnRecord<'_>,
    records: RecordsSoFar,
) -> Result<Option<AccessReview>, SealError> {
    let record = found.record;
    let Ok(kind) = record.request.kind.parse() else {
        return Ok(None);
    };
    let spec = AccessReviewSpec {
        access_request_ref: AccessRequestReference {
            kind,
            name: record.request.name.clone(),
            uid: record.request.uid.clone(),
        },
        requester: Reviewed {
            user: found.requester.user.clone(),
            uid: found.requester.uid.clone(),
        },
        template: record.template.clone(),
        emergency: record.details.get("reason").cloned().unwrap_or_default(),
        granted_at: record.time,
        records,
        due_at: found.emergency.due_at,
        reviewers: found.emergency.reviewers.clone(),
        finding: None,
        reason: None,
    };
    let mut review = AccessReview::new(&name_of(&record.request), spec);
    let uid = labels::value(&record.request.uid);
    review.metadata = ObjectMeta {
        namespace: Some(record.request.namespace.clone()),
        labels: Some(BTreeMap::from([
            (labels::REQUEST_UID.to_owned(), uid),
            (labels::MANAGED_BY.to_owned(), labels::OZ.to_owned()),
        ])),
        ..review.metadata
    };
    put_seal(keys, &mut review, Standing::default())?;
    Ok(Some(review))
}

/// Records of a request as a review has them, from the names of their objects.
#[must_use]
pub fn records_so_far(mut names: Vec<String>) -> RecordsSoFar {
    names.sort_unstable();
    RecordsSoFar {
        count: i64::try_from(names.len()).unwrap_or(i64::MAX),
        digest: encode::digest(&names),
    }
}

/// Seals a review as it is now.
///
/// # Errors
/// Only if it does not serialise, which its types rule out.
pub fn put_seal(
    keys: &Keys,
    review: &mut AccessReview,
    standing: Standing,
) -> Result<(), SealError> {
    let by = standing.by.as_ref().map(|by| by.user.clone());
    let text = sealed(keys, review, standing)?;
    let annotations = review.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::REVIEW.to_owned(), text);
    if let Some(by) = by {
        annotations.insert(labels::REVIEWED_BY.to_owned(), by);
    }
    Ok(())
}

fn sealed(keys: &Keys, review: &AccessReview, standing: Standing) -> Result<String, SealError> {
    let metadata = &review.metadata;
    let sealed = Sealed {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        spec: review.spec_digest(),
        standing,
    };
    seal::seal(keys, PURPOSE, &sealed)
}

/// The seal as it stands on a review.
#[must_use]
pub fn seal_of(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(labels::REVIEW).map(String::as_str)
}

/// How far a review has come; `None` if it is not ours, or was changed since it was sealed.
#[must_use]
pub fn read(keys: &Keys, review: &AccessReview) -> Option<Standing> {
    let sealed: Sealed = seal::open(keys, PURPOSE, seal_of(&review.metadata)?).ok()?;
    let metadata = &review.metadata;
    let is_this = Some(&sealed.namespace) == metadata.namespace.as_ref()
        && Some(&sealed.name) == metadata.name.as_ref()
        && sealed.spec == review.spec_digest();
    let whole = sealed.standing.by.is_some() == review.spec.finding.is_some()
        && sealed.standing.by.is_some() == sealed.standing.at.is_some();
    (is_this && whole).then_some(sealed.standing)
}

/// Who asked for what is reviewed.
#[must_use]
pub fn requester(review: &AccessReview) -> Requester {
    let Reviewed { user, uid } = review.spec.requester.clone();
    Requester {
        user,
        uid,
        groups: Vec::new(),
    }
}

/// Whether somebody is among those who review this, and did not ask for it.
#[must_use]
pub fn is_reviewer(review: &AccessReview, person: &Requester) -> bool {
    let reviewers = &review.spec.reviewers;
    is_listed(&reviewers.groups, &reviewers.users, person)
        && !is_same_person(&requester(review), person)
}

/// Whether `person` may write what `new` says into the review `old`.
///
/// # Errors
/// A [`Denial`] that says why not and what to do next.
pub fn may(
    keys: &Keys,
    person: &Requester,
    old: &AccessReview,
    new: &AccessReview,
) -> Result<(), Denial> {
    let name = old.metadata.name.as_deref().unwrap_or_default();
    let denied = |reason, why: String| Err(Denial::new(reason, why));
    if new.spec.opened() != old.spec.opened() {
        let why = format!(
            "what review {name} is about is oz's, and is not changed: write spec.finding and spec.reason"
        );
        return denied("Immutable", why);
    }
    let Some(standing) = read(keys, old) else {
        let why = format!(
            "review {name} is not as oz sealed it, so nothing that is written into it would count; \
             have an administrator look at it"
        );
        return denied("ReviewForged", why);
    };
    if let Some(by) = standing.by {
        let why = format!(
            "{} wrote review {name} already, and it stays as it is",
            by.user
        );
        return denied("ReviewedAlready", why);
    }
    if new.spec.finding.is_none() {
        let why = format!(
            "review {name} needs a finding: set spec.finding to Justified, Unjustified or FollowUp, and \
             spec.reason"
        );
        return denied("FindingMissing", why);
    }
    let asked = requester(old);
    if is_same_person(&asked, person) {
        let why = format!(
            "{} asked for this emergency themselves; somebody else has to review it ({})",
            asked.user,
            reviewers_named(&old.spec.reviewers)
        );
        return denied("OwnEmergency", why);
    }
    if !is_reviewer(old, person) {
        let account = match person.service_account() {
            Some(_) => "; a service account is only by its own name, in users",
            None => "",
        };
        let why = format!(
            "{} is none of those who review {name} ({}){account}; ask one of them",
            person.user,
            reviewers_named(&old.spec.reviewers)
        );
        return denied("NotAReviewer", why);
    }
    Ok(())
}

/// What is to be done about a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// Its time is over and nobody wrote it: that is put on record, and its status says so.
    Overdue,
    /// It was overdue and is written: its status says so.
    Settled,
    /// It is sealed by a key that goes: this is its seal by the one that stays.
    Sealed(String),
    /// It was written so long ago that it can go.
    Over,
}

/// Whether nobody wrote a review in time.
#[must_use]
pub fn is_overdue(review: &AccessReview, standing: &Standing, now: Timestamp) -> bool {
    standing.by.is_none() && has_come(now, review.spec.due_at)
}

/// What is to be done about a review of ours now, of which `standing` is known; one that is written is kept for
/// `keep` after that.
#[must_use]
pub fn upkeep(
    keys: &Keys,
    review: &AccessReview,
    standing: &Standing,
    now: Timestamp,
    keep: SignedDuration,
) -> Option<Upkeep> {
    if review.metadata.deletion_timestamp.is_some() {
        return None;
    }
    if standing.at.is_some_and(|at| has_come(now, after(at, keep))) {
        return Some(Upkeep::Over);
    }
    let conditions = review.status.as_ref().map(|status| &*status.conditions);
    let told = conditions::is_true(conditions.unwrap_or_default(), conditions::OVERDUE);
    match (told, is_overdue(review, standing, now)) {
        (false, true) => return Some(Upkeep::Overdue),
        (true, _) if standing.by.is_some() => return Some(Upkeep::Settled),
        _ => {}
    }
    let again = sealed(keys, review, standing.clone()).ok()?;
    (seal_of(&review.metadata) != Some(&again)).then_some(Upkeep::Sealed(again))
}

/// The status that says whether a review is overdue.
#[must_use]
pub fn status(review: &AccessReview, overdue: bool, now: Timestamp) -> ReviewStatus {
    let mut status = review.status.clone().unwrap_or_default();
    let (reason, message) = if overdue {
        let waits = format!(
            "nobody has reviewed the emergency of {} ({} {}), which was due until {}: {} may",
            review.spec.requester.user,
            review.spec.access_request_ref.kind,
            review.spec.access_request_ref.name,
            review.spec.due_at,
            reviewers_named(&review.spec.reviewers)
        );
        (OVERDUE, waits)
    } else {
        (REVIEWED, "it was reviewed after it was due".to_owned())
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

/// A record of something that happened to a review.
#[must_use]
pub fn record(
    review: &AccessReview,
    now: Timestamp,
    action: Action,
    decision: Decision,
    reason: &str,
    message: impl Into<String>,
) -> Record {
    let about = &review.spec.access_request_ref;
    let namespace = review.metadata.namespace.clone().unwrap_or_default();
    Record {
        request: RequestRef {
            kind: about.kind.to_string(),
            namespace,
            name: about.name.clone(),
            uid: about.uid.clone(),
        },
        template: review.spec.template.clone(),
        ..Record::about(now, action, decision, &about.uid, reason, message)
    }
    .detail("requester", review.spec.requester.user.clone())
    .detail("dueAt", review.spec.due_at.to_string())
}

/// The record that nobody wrote a review in time.
#[must_use]
pub fn overdue(review: &AccessReview, now: Timestamp) -> Record {
    let message = format!(
        "nobody reviewed the emergency of {} until {}; {} may",
        review.spec.requester.user,
        review.spec.due_at,
        reviewers_named(&review.spec.reviewers)
    );
    let (action, note) = (Action::ReviewOverdue, Decision::Note);
    record(review, now, action, note, OVERDUE, message)
}
