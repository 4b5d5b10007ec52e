//! The guard of deletions: the decision whether a changed policy may delete children that it does not return.

use super::survey::Survey;
use crate::declared::Declared;
use crate::guard;
use crate::source::Source;

/// Reason of a composite with a policy that would delete more children than the limit.
pub const DELETION_LIMIT_EXCEEDED: &str = "DeletionLimitExceeded";

/// The decision whether a policy may delete children that it does not return.
pub(super) enum Guarded {
    /// Deletion is permitted.
    Not,
    /// The number of deletions is unknown yet.
    Counting,
    /// The policy would delete too many children, for this reason.
    TooMany(String),
}

/// Returns the guard of a policy. A policy that ran before, or with an accepted digest, may delete; another must stay
/// within the limit.
pub(super) fn guard_of<S: Source>(
    composite: &S,
    declared: &Declared,
    survey: &Survey,
    digest: Option<&str>,
) -> Guarded {
    let (Some(most), Some(digest)) = (declared.most_deletions, digest) else {
        return Guarded::Not;
    };
    let before = composite
        .standing()
        .and_then(|status| status.accepted_digest.as_deref());
    let annotations = composite.meta().annotations.as_ref();
    let accepted = annotations.and_then(|annotations| annotations.get(guard::ACCEPT));
    if before == Some(digest) || accepted.is_some_and(|accepted| accepted == digest) {
        return Guarded::Not;
    }
    // The previous policy may still run: the reports of its parents are not about this one.
    let tally = survey.tally.as_ref();
    let tally = tally.filter(|tally| tally.complete && tally.policy.as_deref() == Some(digest));
    let Some(tally) = tally else {
        return Guarded::Counting;
    };
    if tally.is_within(most) {
        return Guarded::Not;
    }
    let doubtful = match tally.doubtful {
        0 => String::new(),
        count => format!(", and possibly {count} more"),
    };
    Guarded::TooMany(format!(
        "the policy {digest} would delete {} children{doubtful}; the maximum is {most} \
            (limits.deletions). Creations and changes continue. To accept the deletions: annotate \
            {}={digest}",
        tally.deletions,
        guard::ACCEPT,
    ))
}
