//! When and how the authority changes. Pure: the Secret, a policy and an instant go in,
//! one step comes out.
//!
//! A rotation is three steps, each one write of the Secret, by whichever replica comes
//! first: *stage* a next authority so that it gets published beside the active one;
//! *promote* it once it has been published for long enough; *forget* the old one when
//! no replica can be serving with it any more. At every moment each leaf in use is
//! signed by an authority that is published. What else replicas share changes by steps of its own, see `shared`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;

use super::{CertPolicy, authority, secret::Stored};

/// Why the authority has to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// There is no Secret.
    Missing,
    /// A key of the Secret is missing or is no text.
    Incomplete,
    /// The certificate or the key cannot be read.
    Unreadable,
    /// The certificate may not sign others; a serving certificate was put in its place.
    NotAuthority,
    /// Certificate and key do not belong together.
    KeyMismatch,
    /// The certificate begins in the future.
    NotYetValid,
    /// The certificate has ended.
    Expired,
    /// The certificate has reached the part of its life at which it is renewed.
    Due,
    /// Someone asked for it by annotation.
    Requested,
}

impl Reason {
    /// For labels and annotations.
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

    /// Whether the Secret is of no use, rather than merely due.
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

/// Whether the authority in `secret` has to change, and why.
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
    // `from` is when it was made; it is valid a little before, see `authority::BACKDATED`.
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

/// One write of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing to do before this instant, if any.
    Wait(Option<Timestamp>),
    /// The Secret is of no use: write a good authority into it.
    Replace(Reason),
    /// Put the key of the paths into it: there is none.
    KeyPaths,
    /// Put the authority that we still serve with among the previous ones: someone
    /// replaced it, and until we have followed, clients have to trust it.
    Remember,
    /// Put a next authority beside the active one.
    Stage(Reason),
    /// Let the next authority take over.
    Promote,
    /// Stop trusting the previous authorities.
    Forget,
    /// Put a next key of the paths beside the active one.
    StagePaths,
    /// Let the next key of the paths take over.
    PromotePaths,
    /// Take no calls by the previous key of the paths any more.
    ForgetPaths,
    /// Tell other replicas which callers are known.
    Callers,
}

/// The step that is due at `now`.
///
/// `serving` is the authority (PEM) of the leaf in use. `published_since` tells when a
/// certificate was first seen in every configuration; `None` if it is not there, or if
/// nobody can tell.
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
    // Without a readable instant the old ones would stay for ever.
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
