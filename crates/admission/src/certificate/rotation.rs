//! The steps of the rotation of the authority, and their instants. Pure: the input is the Secret, a policy
//! and an instant, the output is one step.
//!
//! A rotation has three steps. Each is one write of the Secret, by the first replica that performs it:
//! *stage* a next authority so that it is published in addition to the active one; *promote* it once it has
//! been published for long enough; *forget* the old one when no replica can be serving with it any more. At
//! every moment each leaf in use is signed by an authority that is published. The other shared data of
//! replicas has its own steps, see `shared`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;

use super::{CertPolicy, authority, secret::Stored};

/// The reason for which the authority must change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The Secret does not exist.
    Missing,
    /// A key of the Secret is missing or is not text.
    Incomplete,
    /// The certificate or the key cannot be read.
    Unreadable,
    /// The certificate may not sign others: the Secret contains a serving certificate instead of an
    /// authority.
    NotAuthority,
    /// The certificate and the key do not belong together.
    KeyMismatch,
    /// The certificate begins in the future.
    NotYetValid,
    /// The certificate has expired.
    Expired,
    /// The certificate has reached the part of its lifetime at which it is renewed.
    Due,
    /// A user requested the rotation by annotation.
    Requested,
}

impl Reason {
    /// Returns the name for labels and annotations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "Missing",
            Self::Incomplete => "Incomplete",
            Self::Unreadable => "Unreadable",
            Self::NotAuthority => "NotAuthority",
            Self::KeyMismatch => "KeyMismatch",
            Self::NotYetValid => "NotYetValid",
            Self::Expired => "Expired",
            Self::Due => "Due",
            Self::Requested => "Requested",
        }
    }

    /// Checks whether the Secret is unusable, in contrast to a due renewal.
    pub const fn is_damage(self) -> bool {
        !matches!(self, Self::Due | Self::Requested)
    }
}

impl From<authority::Error> for Reason {
    fn from(error: authority::Error) -> Self {
        match error {
            authority::Error::NotAuthority => Self::NotAuthority,
            authority::Error::KeyMismatch => Self::KeyMismatch,
            _ => Self::Unreadable,
        }
    }
}

/// Checks whether the authority in `secret` must change, and returns the reason.
pub fn needs_rotation(
    secret: Option<&Secret>,
    policy: &CertPolicy,
    now: Timestamp,
) -> Option<Reason> {
    match secret.map(Stored::read) {
        None => Some(Reason::Missing),
        Some(Err(reason)) => Some(reason),
        Some(Ok(stored)) => stored_needs_rotation(&stored, policy, now),
    }
}

fn stored_needs_rotation(stored: &Stored, policy: &CertPolicy, now: Timestamp) -> Option<Reason> {
    let active = &stored.active;
    // `from` is the instant of creation; the authority is valid a little before, see
    // `authority::BACKDATED`.
    if now
        < active
            .from
            .checked_sub(SignedDuration::from_secs(300))
            .unwrap_or(active.from)
    {
        Some(Reason::NotYetValid)
    } else if now >= active.until {
        Some(Reason::Expired)
    } else if stored.rotate.is_some() && stored.rotate != stored.rotated {
        Some(Reason::Requested)
    } else if now >= policy.renewal(active.from, active.until) {
        Some(Reason::Due)
    } else {
        None
    }
}

/// A write of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// No write before this instant, if there is one.
    Wait(Option<Timestamp>),
    /// A valid authority for an unusable Secret.
    Replace(Reason),
    /// A key of the paths for a Secret without one.
    KeyPaths,
    /// An entry among the previous authorities for the authority with which this replica still serves:
    /// another writer replaced it, and clients must trust it until this replica serves with the new one.
    Remember,
    /// A next authority in addition to the active one.
    Stage(Reason),
    /// The change of the next authority to the active one.
    Promote,
    /// The removal of the previous authorities.
    Forget,
    /// A next key of the paths in addition to the active one.
    StagePaths,
    /// The change of the next key of the paths to the active one.
    PromotePaths,
    /// The removal of the previous key of the paths, so that it is no longer accepted.
    ForgetPaths,
    /// The known callers, for other replicas.
    Callers,
}

/// Returns the step that is due at `now`.
///
/// `serving` is the authority (PEM) of the leaf in use. `published_since` returns the instant at which a
/// certificate was first seen in every configuration; `None` if it is not there, or if the instant is
/// unknown.
pub(crate) fn next_step(
    secret: Option<&Secret>,
    policy: &CertPolicy,
    now: Timestamp,
    serving: Option<&str>,
    published_since: impl Fn(&str) -> Option<Timestamp>,
) -> Step {
    let stored = match secret.map(Stored::read) {
        None => return Step::Replace(Reason::Missing),
        Some(Err(reason)) => return Step::Replace(reason),
        Some(Ok(stored)) => stored,
    };
    let needed = stored_needs_rotation(&stored, policy, now);
    if let Some(reason) = needed.filter(|reason| reason.is_damage()) {
        return Step::Replace(reason);
    }
    if stored.paths.is_none() {
        return Step::KeyPaths;
    }
    if serving.is_some_and(|serving| !stored.trusted().any(|trusted| trusted == serving)) {
        return Step::Remember;
    }
    match (&stored.next, needed) {
        (Some(next), _) if next.until > now => match published_since(&next.certificate) {
            Some(since) if after(since, policy.settle) <= now => Step::Promote,
            Some(since) => Step::Wait(Some(after(since, policy.settle))),
            None => Step::Wait(None),
        },
        (_, Some(reason)) => Step::Stage(reason),
        (_, None) => wait_or_forget(&stored, policy, now),
    }
}

fn wait_or_forget(stored: &Stored, policy: &CertPolicy, now: Timestamp) -> Step {
    let renewal = policy.renewal(stored.active.from, stored.active.until);
    if stored.previous.is_empty() {
        return Step::Wait(Some(renewal));
    }
    // Without a readable instant, the old authorities would never be removed.
    let promoted_at = stored.promoted_at.unwrap_or(stored.active.from);
    let end = after(promoted_at, policy.overlap);
    if end <= now {
        Step::Forget
    } else {
        Step::Wait(Some(end.min(renewal)))
    }
}

pub(crate) fn after(instant: Timestamp, duration: std::time::Duration) -> Timestamp {
    SignedDuration::try_from(duration)
        .ok()
        .and_then(|duration| instant.checked_add(duration).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
#[path = "rotation_tests.rs"]
mod tests;
