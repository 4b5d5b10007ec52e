//! Emergencies: the users with access without approvals, its duration, and the maximum number of unreviewed
//! emergencies. The sealed terms of the grant are part of its audit record, and the operator creates a
//! [`review`] from that record: it is durable before the requester has access, and stays when all other
//! objects are deleted.

pub mod break_glass;
mod count;
pub mod finding;
#[cfg(test)]
mod finding_tests;
pub mod review;
mod stage;
pub mod subject;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use oz_api::duration::GoDuration;
use oz_api::{AccessConfig, EmergencyConfig, Requester, Reviewers, encode};
use oz_trail::{Action, Record};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::denial::{Denial, format_subjects, list};
use crate::lifecycle::seal::{self, Keys, Purpose, SealError};
use crate::lifecycle::window::after;

pub use super::emergency_rule::{may, may_declare, permitted};
pub use super::grant::Emergency;
pub use count::unreviewed;
pub use stage::fact;

const PURPOSE: Purpose = Purpose::Emergency;

/// The maximum size of the reviewers in an audit record, in bytes.
pub const MAX_REVIEWERS: usize = 1000;
/// The detail of an audit record with the time at which the review is due.
const DUE_AT: &str = "reviewDueAt";
/// The detail of an audit record with the reviewers.
const REVIEWERS: &str = "reviewers";
/// The detail of an audit record with the seal over all data from which a review is created.
const PROOF: &str = "proof";

/// The parsed settings of a template, or of access policies, for emergencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The template, or the access policies, that set the terms, in words.
    pub source: String,
    /// Maximum duration of access.
    pub longest: GoDuration,
    /// Time from the grant until its review is due.
    pub within: GoDuration,
    /// Reviewers.
    pub reviewers: Reviewers,
    /// Maximum number of unreviewed emergencies of one person.
    pub most: usize,
}

impl Terms {
    /// Parses the emergency settings of the template with this name; `None` if it has none, or they are not valid.
    #[must_use]
    pub fn from_template(name: &str, config: Option<&EmergencyConfig>) -> Option<Self> {
        Self::from_source(format!("template {name}"), config?)
    }

    /// Parses the emergency settings of a template or of access policies; `None` if they are not valid.
    #[must_use]
    pub fn from_source(source: String, config: &EmergencyConfig) -> Option<Self> {
        Some(Self {
            source,
            longest: config.max_duration.parse().ok()?,
            within: config.review.deadline.parse().ok()?,
            reviewers: Reviewers::from(&config.review),
            most: usize::try_from(config.open_reviews).ok()?,
        })
    }

    /// Creates the emergency of a grant at `now`.
    #[must_use]
    pub fn granted(&self, now: Timestamp) -> Emergency {
        Emergency {
            due_at: after(now, self.within),
            reviewers: self.reviewers.clone(),
        }
    }

    /// Checks whether a user with these unreviewed emergencies, each named by the UID of its object, may have another.
    ///
    /// # Errors
    /// A [`Denial`] with the reason and the next step.
    pub fn has_room(&self, requester: &Requester, unreviewed: &[String]) -> Result<(), Denial> {
        let (count, user) = (unreviewed.len(), &requester.user);
        let Self { source, most, .. } = self;
        if count < *most {
            return Ok(());
        }
        Err(Denial::new(
            "TooManyOpenReviews",
            format!(
                "{count} emergencies of {user} have no review (UIDs {}), and {source} denies \
                 another one from {most} on; have a reviewer write the findings (`ozctl review UID`, which \
                 also finds the review of a deleted namespace; `ozctl reviews --all -A` lists all), or \
                 create the request without spec.emergency",
                list(unreviewed)
            ),
        ))
    }
}

/// Returns the maximum duration of access by a template that otherwise permits `max`.
#[must_use]
pub fn longest(config: &AccessConfig, emergency: bool, max: GoDuration) -> GoDuration {
    let terms = config.emergency.as_ref().filter(|_| emergency);
    let longest: Option<GoDuration> = terms.and_then(|terms| terms.max_duration.parse().ok());
    longest.map_or(max, |longest| longest.min(max))
}

/// Formats the reviewers for an audit record.
#[must_use]
pub fn reviewers_text(reviewers: &Reviewers) -> String {
    serde_json::to_string(reviewers).unwrap_or_default()
}

/// Lists the reviewers in words.
#[must_use]
pub fn reviewers_named(reviewers: &Reviewers) -> String {
    list(&format_subjects(&reviewers.users, &reviewers.groups))
}

/// Adds the data from which a review is created to the audit record of an emergency; returns any other record
/// unchanged.
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

/// The content of the seal in an audit record.
#[derive(Serialize, Deserialize)]
struct Proof {
    digest: String,
}

/// Returns the digest of all data in an audit record from which a review is created.
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

/// An emergency as its audit record proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnRecord<'a> {
    /// Audit record.
    pub record: &'a Record,
    /// Requester.
    pub requester: &'a Requester,
    /// Sealed terms of the grant.
    pub emergency: Emergency,
}

/// Reads the emergency from an audit record; `None` if the record is of another kind, or was not written by
/// oz.
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
