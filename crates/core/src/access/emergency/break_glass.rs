//! What break-glass groups open in enforcing namespaces: how its record proves who got in and in which time, and what
//! a review is made of that. All that one person opens in one namespace in such a time is one review, as an incident
//! is one thing to look at; no finding is written before the time is over, so that nothing is opened after it.

use jiff::{SignedDuration, Timestamp};
use oz_api::{BreakGlassWindow, Requester, Reviewers, encode};
use oz_trail::{Action, Record};
use serde::{Deserialize, Serialize};

use crate::lifecycle::seal::{self, Keys, Purpose, SealError};
use crate::lifecycle::window::after;

const PURPOSE: Purpose = Purpose::BreakGlass;

/// Detail of a record: the first instant of the time that one review is about.
const FROM: &str = "reviewFrom";
/// Detail of a record: the first instant after.
const UNTIL: &str = "reviewUntil";
/// Detail of a record: the seal over who got in, where and in which time.
const PROOF: &str = "proof";

/// How reviews of break-glass are opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long after the end of the time its review is due.
    pub within: SignedDuration,
    /// Who reviews; none stands for whoever may write reviews there.
    pub reviewers: Reviewers,
}

/// What the seal in a record covers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Proof {
    user: String,
    uid: String,
    namespace: String,
    from: Timestamp,
    until: Timestamp,
}

/// Something that was opened as break-glass, as its record proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening<'a> {
    /// The record.
    pub record: &'a Record,
    /// Who got in.
    pub requester: &'a Requester,
    /// The time that its review is about.
    pub window: BreakGlassWindow,
}

/// The time of this length in which an instant lies: one begins where another ends.
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

/// The record with what a review is made of.
///
/// # Errors
/// Only if it does not serialise, which its types rule out.
pub fn proven(keys: &Keys, record: Record, length: SignedDuration) -> Result<Record, SealError> {
    let window = window(record.time, length);
    let record = record
        .detail(FROM, window.from.to_string())
        .detail(UNTIL, window.until.to_string());
    let Some(proof) = told(&record) else {
        return Ok(record);
    };
    let sealed = seal::seal(keys, PURPOSE, &proof)?;
    Ok(record.detail(PROOF, sealed))
}

/// What a record says of what is sealed.
fn told(record: &Record) -> Option<Proof> {
    let user = record.user.as_ref()?;
    Some(Proof {
        user: user.user.clone(),
        uid: user.uid.clone(),
        namespace: record.request.namespace.clone(),
        from: record.details.get(FROM)?.parse().ok()?,
        until: record.details.get(UNTIL)?.parse().ok()?,
    })
}

/// What a record tells that was opened as break-glass; `None` if it is of another kind, or was not written by us.
#[must_use]
pub fn on_record<'a>(keys: &Keys, record: &'a Record) -> Option<Opening<'a>> {
    if record.action != Action::BreakGlassOpened {
        return None;
    }
    let proof: Proof = seal::open(keys, PURPOSE, record.details.get(PROOF)?).ok()?;
    let told = told(record)?;
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

/// The name of the review of what a record tells: the same for all of one person, namespace and time.
#[must_use]
pub fn name_of(record: &Record) -> Option<String> {
    let proof = told(record)?;
    let digest = encode::digest(&proof);
    let digits = digest.strip_prefix("sha256:").unwrap_or_default();
    let short: String = digits.chars().take(16).collect();
    Some(format!("break-glass-{short}"))
}
