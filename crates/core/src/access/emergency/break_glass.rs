//! Connections and changes with break-glass in enforcing namespaces: the proof of user and time in an audit
//! record, and the resulting review. All actions of one person in one namespace in one such window have one
//! review, as an incident is reviewed as a whole; no finding is written before the window is over, so that no
//! action follows it.

use jiff::{SignedDuration, Timestamp};
use oz_api::{BreakGlassWindow, Requester, Reviewers, encode};
use oz_trail::{Action, Record};
use serde::{Deserialize, Serialize};

use crate::lifecycle::seal::{self, Keys, Purpose, SealError};
use crate::lifecycle::window::after;

const PURPOSE: Purpose = Purpose::BreakGlass;

/// The detail of an audit record with the first instant of the window of a review.
const FROM: &str = "reviewFrom";
/// The detail of an audit record with the first instant after the window.
const UNTIL: &str = "reviewUntil";
/// The detail of an audit record with the seal over user, namespace and window.
const PROOF: &str = "proof";

/// The terms of reviews of break-glass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time from the end of the window until its review is due.
    pub within: SignedDuration,
    /// Reviewers; an empty value means each user who may write reviews there.
    pub reviewers: Reviewers,
}

/// The content of the seal in an audit record.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Proof {
    user: String,
    uid: String,
    namespace: String,
    from: Timestamp,
    until: Timestamp,
}

/// An action with break-glass, as its audit record proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening<'a> {
    /// Audit record.
    pub record: &'a Record,
    /// User.
    pub requester: &'a Requester,
    /// Window of its review.
    pub window: BreakGlassWindow,
}

/// Returns the window of this length that contains an instant: one begins where another ends.
#[must_use]
pub fn window(now: Timestamp, length: SignedDuration) -> BreakGlassWindow {
    let length = length.max(SignedDuration::from_secs(1));
    let past = now.as_nanosecond().rem_euclid(length.as_nanos());
    let past = i64::try_from(past).map_or(SignedDuration::ZERO, SignedDuration::from_nanos);
    let from = now.checked_sub(past).unwrap_or(Timestamp::MIN);
    BreakGlassWindow {
        from,
        until: after(from, length),
    }
}

/// Adds the data from which a review is created to the audit record.
///
/// # Errors
/// Only if it does not serialise, which its types rule out.
pub fn proven(keys: &Keys, record: Record, length: SignedDuration) -> Result<Record, SealError> {
    let window = window(record.time, length);
    let record = record
        .detail(FROM, window.from.to_string())
        .detail(UNTIL, window.until.to_string());
    let Some(proof) = read_proof(&record) else {
        return Ok(record);
    };
    let sealed = seal::seal(keys, PURPOSE, &proof)?;
    Ok(record.detail(PROOF, sealed))
}

/// Returns the sealed data of an audit record.
fn read_proof(record: &Record) -> Option<Proof> {
    let user = record.user.as_ref()?;
    Some(Proof {
        user: user.user.clone(),
        uid: user.uid.clone(),
        namespace: record.request.namespace.clone(),
        from: record.details.get(FROM)?.parse().ok()?,
        until: record.details.get(UNTIL)?.parse().ok()?,
    })
}

/// Reads an action with break-glass from an audit record; `None` if the record is of another kind, or was not
/// written by oz.
#[must_use]
pub fn on_record<'a>(keys: &Keys, record: &'a Record) -> Option<Opening<'a>> {
    if record.action != Action::BreakGlassOpened {
        return None;
    }
    let proof: Proof = seal::open(keys, PURPOSE, record.details.get(PROOF)?).ok()?;
    let told = read_proof(record)?;
    if proof != told {
        return None;
    }
    Some(Opening {
        record,
        requester: record.user.as_ref()?,
        window: BreakGlassWindow {
            from: told.from,
            until: told.until,
        },
    })
}

/// Returns the name of the review for an audit record: the same for all of one person, namespace and window.
#[must_use]
pub fn name_of(record: &Record) -> Option<String> {
    let proof = read_proof(record)?;
    let digest = encode::digest(&proof);
    let digits = digest.strip_prefix("sha256:")?;
    let short: String = digits.chars().take(16).collect();
    Some(format!("break-glass-{short}"))
}
