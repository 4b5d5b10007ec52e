//! Emergencies: who gets in without anybody's approval, for how long, and how many of theirs may wait to be
//! looked at. What the grant seals of it goes into its record, and the record is what a [`review`] is made of:
//! it is durable before anybody gets in, and stays when everything else is deleted.

pub mod break_glass;
mod count;
pub mod review;
mod stage;
pub mod subject;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use oz_api::duration::GoDuration;
use oz_api::{AccessConfig, Requester, Reviewers, encode};
use oz_trail::{Action, Record};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::denial::{Denial, list, named};
use crate::lifecycle::seal::{self, Keys, Purpose, SealError};
use crate::lifecycle::window::after;

pub use super::emergency_rule::may;
pub use super::grant::Emergency;
pub use count::unreviewed;
pub(super) use stage::{confirmed, fact, settled};

const PURPOSE: Purpose = Purpose::Emergency;

/// The most bytes that those who may review take in a record.
pub const MAX_REVIEWERS: usize = 1000;
/// Detail of a record: until when the review is due.
const DUE_AT: &str = "reviewDueAt";
/// Detail of a record: who may review.
const REVIEWERS: &str = "reviewers";
/// Detail of a record: the seal over all that a review is made of.
const PROOF: &str = "proof";

/// What a template says of emergencies, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long access lasts at most.
    pub longest: GoDuration,
    /// How long after the grant its review is due.
    pub within: GoDuration,
    /// Who reviews.
    pub reviewers: Reviewers,
    /// How many of one person may be unreviewed.
    pub most: usize,
}

impl Terms {
    /// What a template says; `None` if it allows none, or says it in a way that cannot be used.
    #[must_use]
    pub fn of(config: &AccessConfig) -> Option<Self> {
        let config = config.emergency.as_ref()?;
        Some(Self {
            longest: config.max_duration.parse().ok()?,
            within: config.review.within.parse().ok()?,
            reviewers: Reviewers::from(&config.review),
            most: usize::try_from(config.open_reviews).ok()?,
        })
    }

    /// The emergency that is granted now.
    #[must_use]
    pub fn granted(&self, now: Timestamp) -> Emergency {
        Emergency {
            due_at: after(now, self.within),
            reviewers: self.reviewers.clone(),
        }
    }
}

/// How long access by a template lasts at most, whose longest is `max` otherwise.
#[must_use]
pub fn longest(config: &AccessConfig, emergency: bool, max: GoDuration) -> GoDuration {
    let terms = Terms::of(config).filter(|_| emergency);
    terms.map_or(max, |terms| terms.longest.min(max))
}

/// Those who may review, as a record has them.
#[must_use]
pub fn reviewers_text(reviewers: &Reviewers) -> String {
    serde_json::to_string(reviewers).unwrap_or_default()
}

/// Those who may review, in words.
#[must_use]
pub fn reviewers_named(reviewers: &Reviewers) -> String {
    list(&named(&reviewers.users, &reviewers.groups))
}

/// Whether somebody with so many unreviewed emergencies may have another.
///
/// # Errors
/// A [`Denial`] that says why not and what to do next.
pub fn has_room(
    requester: &Requester,
    template: &str,
    most: usize,
    unreviewed: usize,
) -> Result<(), Denial> {
    if unreviewed < most {
        return Ok(());
    }
    let user = &requester.user;
    Err(Denial::new(
        "OpenReviews",
        format!(
            "{unreviewed} emergencies of {user} have not been reviewed, and template {template} allows no \
             further one from {most} on; have them reviewed (`ozctl reviews --all` lists them), or ask \
             without spec.emergency"
        ),
    ))
}

/// The record of a grant that is an emergency, with what a review is made of; any other as it is.
///
/// # Errors
/// Only if it does not serialise, which its types rule out.
pub fn proven(
    keys: &Keys,
    record: Record,
    emergency: Option<&Emergency>,
) -> Result<Record, SealError> {
    let Some(emergency) = emergency else {
        return Ok(record);
    };
    let record = record
        .detail(DUE_AT, emergency.due_at.to_string())
        .detail(REVIEWERS, reviewers_text(&emergency.reviewers));
    let digest = digest(&record);
    let sealed = seal::seal(keys, PURPOSE, &Proof { digest })?;
    Ok(record.detail(PROOF, sealed))
}

/// What the seal in a record covers.
#[derive(Serialize, Deserialize)]
struct Proof {
    digest: String,
}

/// Digest of all in a record that a review is made of.
fn digest(record: &Record) -> String {
    let user = record.user.as_ref();
    let detail = |name: &str| record.details.get(name);
    encode::digest(&json!({
        "request": record.request,
        "user": user.map(|user| &user.user),
        "uid": user.map(|user| &user.uid),
        "template": record.template,
        "reason": detail("reason"),
        "dueAt": detail(DUE_AT),
        "reviewers": detail(REVIEWERS),
    }))
}

/// An emergency as its record proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnRecord<'a> {
    /// The record.
    pub record: &'a Record,
    /// Who asked.
    pub requester: &'a Requester,
    /// What the grant sealed.
    pub emergency: Emergency,
}

/// The emergency that a record tells of; `None` if it is of another kind, or was not written by us.
#[must_use]
pub fn on_record<'a>(keys: &Keys, record: &'a Record) -> Option<OnRecord<'a>> {
    if record.action != Action::EmergencyGranted || record.request.uid.is_empty() {
        return None;
    }
    let detail = |name: &str| record.details.get(name);
    let proof: Proof = seal::open(keys, PURPOSE, detail(PROOF)?).ok()?;
    if proof.digest != digest(record) {
        return None;
    }
    Some(OnRecord {
        record,
        requester: record.user.as_ref()?,
        emergency: Emergency {
            due_at: detail(DUE_AT)?.parse().ok()?,
            reviewers: serde_json::from_str(detail(REVIEWERS)?).ok()?,
        },
    })
}
