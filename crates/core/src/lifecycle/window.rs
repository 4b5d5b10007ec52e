//! The time of a grant, and the time for which a request waits for one.

use jiff::Timestamp;
use oz_api::duration::GoDuration;
use serde::{Deserialize, Serialize};

pub use oz_api::instant::{after, has_come};

/// The time for which a request may wait for its grant if it names no duration.
pub const FALLBACK: GoDuration = GoDuration::from_secs(60 * 60);
/// The maximum time for which any request may wait for its grant.
const LONGEST_WAIT: GoDuration = GoDuration::from_secs(24 * 60 * 60);

/// The time of a grant: from the creation of its request, or from the grant if it took approvals, until and
/// not including `until`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The agreed instant, at which access ends.
    pub until: Timestamp,
    /// Length in nanoseconds.
    nanoseconds: i64,
    /// Source of the length.
    pub source: Source,
}

/// The source of the length of a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The template's default: the request named no duration.
    Default,
    /// The duration of the request.
    Requested,
    /// The template's maximum, since the request named a longer duration: this many nanoseconds.
    Clamped(i64),
}

impl Window {
    /// Creates the window of a request created at `created`. No duration, or zero, is the template's default;
    /// more than the maximum is the maximum, for a default too. A negative duration counts as no remaining
    /// time.
    #[must_use]
    pub fn new(
        created: Timestamp,
        requested: Option<GoDuration>,
        default: GoDuration,
        max: GoDuration,
    ) -> Self {
        let (length, source) = match requested.filter(|asked| !asked.is_zero()) {
            None => (default.min(max), Source::Default),
            Some(asked) if asked > max => (max, Source::Clamped(asked.as_nanos())),
            Some(asked) => (asked, Source::Requested),
        };
        let length = length.max(GoDuration::ZERO);
        Self {
            until: after(created, length),
            nanoseconds: length.as_nanos(),
            source,
        }
    }

    /// Returns the length.
    #[must_use]
    pub fn length(&self) -> GoDuration {
        GoDuration::from_nanos(self.nanoseconds)
    }

    /// Checks whether access has expired at `now`.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        has_come(now, self.until)
    }

    /// Returns the message of condition `AccessDurationsValid`, in the words that scripts expect.
    #[must_use]
    pub fn message(&self) -> String {
        let length = self.length();
        match self.source {
            Source::Default => {
                format!("Access request duration defaulting to template duration time ({length})")
            }
            Source::Requested => format!("Access requested custom duration ({length})"),
            Source::Clamped(asked) => format!(
                "Access requested duration ({}) larger than template maximum duration ({length})",
                GoDuration::from_nanos(asked)
            ),
        }
    }
}

/// Returns the instant at which a request that cannot be granted stops waiting: after its requested duration.
#[must_use]
pub fn waits_until(created: Timestamp, requested: Option<GoDuration>) -> Timestamp {
    let asked = requested
        .filter(|asked| asked.is_positive())
        .unwrap_or(FALLBACK);
    after(created, asked.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use proptest::prelude::*;

    use super::*;

    const HOUR: GoDuration = GoDuration::from_secs(60 * 60);
    const DAY: GoDuration = GoDuration::from_secs(24 * 60 * 60);
    const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

    fn created() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn the_length_is_the_default_the_request_or_the_maximum() {
        let minutes = |count: i64| GoDuration::from_secs(60 * count);
        for (requested, default, max, length, message) in [
            (
                None,
                HOUR,
                DAY,
                HOUR,
                "Access request duration defaulting to template duration time (1h0m0s)",
            ),
            (
                Some(GoDuration::ZERO),
                HOUR,
                DAY,
                HOUR,
                "Access request duration defaulting to template duration time (1h0m0s)",
            ),
            (
                None,
                DAY,
                HOUR,
                HOUR,
                "Access request duration defaulting to template duration time (1h0m0s)",
            ),
            (
                Some(minutes(5)),
                HOUR,
                DAY,
                minutes(5),
                "Access requested custom duration (5m0s)",
            ),
            (
                Some(DAY),
                HOUR,
                DAY,
                DAY,
                "Access requested custom duration (24h0m0s)",
            ),
            (
                Some(minutes(48 * 60)),
                HOUR,
                DAY,
                DAY,
                "Access requested duration (48h0m0s) larger than template maximum duration (24h0m0s)",
            ),
            (
                Some(GoDuration::from_secs(-1)),
                HOUR,
                DAY,
                GoDuration::ZERO,
                "Access requested custom duration (0s)",
            ),
        ] {
            let window = Window::new(created(), requested, default, max);
            assert_eq!(window.length(), length, "{requested:?}");
            assert_eq!(
                window.until,
                created() + SignedDuration::from(length),
                "{requested:?}"
            );
            assert_eq!(window.message(), message);
        }
    }

    #[test]
    fn access_is_over_at_the_agreed_instant_and_not_a_nanosecond_before() {
        let window = Window::new(created(), Some(HOUR), HOUR, DAY);
        let until = created() + SignedDuration::from(HOUR);
        assert!(!window.is_over(until - NANOSECOND));
        assert!(window.is_over(until));
        assert!(window.is_over(until + NANOSECOND));
    }

    #[test]
    fn an_endless_duration_ends_at_the_end_of_time_instead_of_overflowing() {
        let window = Window::new(Timestamp::MAX, Some(HOUR), HOUR, DAY);
        assert_eq!(window.until, Timestamp::MAX);
    }

    proptest! {
        #[test]
        fn a_window_is_never_longer_than_the_maximum(
            requested in proptest::option::of(any::<i64>()),
            default in any::<i64>(),
            max in 0..i64::MAX,
        ) {
            let nanos = GoDuration::from_nanos;
            let window = Window::new(created(), requested.map(nanos), nanos(default), nanos(max));
            prop_assert!(window.length() <= nanos(max));
            prop_assert!(window.until >= created());
        }

        #[test]
        fn no_request_waits_longer_than_a_day(requested in proptest::option::of(any::<i64>())) {
            let until = waits_until(created(), requested.map(GoDuration::from_nanos));
            prop_assert!(until > created() && until <= created() + SignedDuration::from(DAY));
        }
    }
}
