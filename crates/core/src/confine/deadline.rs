//! Deadlines of pods in whole seconds, from 1 to the maximum of the API server. The kubelet terminates a pod at its
//! deadline even while oz is down.
//! See <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-lifetime>.

use jiff::Timestamp;
use oz_api::duration::GoDuration;
use serde_json::{Map, Value, json};

/// The number of seconds before the agreed instant at which the kubelet begins to end a pod automatically: it
/// gives two seconds of grace at least, and was seen to be late.
const BEFORE_THE_END: i64 = 3;
/// The maximum deadline that the API server accepts, in seconds: about 68 years.
const MAX: i64 = 2_147_483_647;
/// The number of nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// Returns the deadline of a pod that starts at `from` and must have ended at `until`. It is rounded down: a grant must
/// not outlast its expiry.
#[must_use]
pub fn ending_by(from: Timestamp, until: Timestamp) -> i64 {
    let remaining = until.duration_since(from).as_secs();
    (remaining - BEFORE_THE_END).clamp(1, MAX)
}

/// Returns the deadline of a pod that may run for a duration. It is rounded up: a run may use all of its timeout.
#[must_use]
pub fn lasting(duration: GoDuration) -> i64 {
    let nanos = duration.as_nanos();
    (nanos / SECOND + i64::from(nanos % SECOND > 0)).clamp(1, MAX)
}

/// Sets the deadline of a pod spec. An earlier deadline, which a template or a workload may have, stays.
pub fn limit(spec: &mut Map<String, Value>, seconds: i64) {
    let own = spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    let seconds = own.map_or(seconds, |own| own.min(seconds));
    spec.insert("activeDeadlineSeconds".to_owned(), json!(seconds));
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Checks for any time until the expiry, in milliseconds, that a pod with more than a second left ends three to
        /// four seconds early.
        #[test]
        fn deadline_of_grant_is_before_its_expiry(left in -10_000_i64..100_000_000) {
            let from = Timestamp::UNIX_EPOCH;
            let until = from + SignedDuration::from_millis(left);
            let deadline = ending_by(from, until);
            let early = left - deadline * 1000;
            prop_assert!(deadline == 1 || (3000..4000).contains(&early), "{left}: {deadline}");
            prop_assert!(deadline >= 1);
        }

        /// Checks for any timeout, in milliseconds, that the deadline is the next whole second.
        #[test]
        fn deadline_of_run_contains_its_timeout(timeout in 1_i64..100_000_000) {
            let deadline = lasting(GoDuration::from_nanos(timeout * 1_000_000));
            let more = deadline * 1000 - timeout;
            prop_assert!((0..1000).contains(&more), "{timeout}: {deadline}");
        }

        #[test]
        fn earlier_deadline_of_a_pod_stays(own in proptest::option::of(1_i64..100), seconds in 1_i64..100) {
            let mut spec = Map::new();
            if let Some(own) = own {
                spec.insert("activeDeadlineSeconds".to_owned(), json!(own));
            }
            limit(&mut spec, seconds);
            let expected = own.map_or(seconds, |own| own.min(seconds));
            prop_assert_eq!(&spec["activeDeadlineSeconds"], &json!(expected));
        }
    }

    /// The API server rejects a pod with a longer deadline, so that a run would be created again and again.
    #[test]
    fn deadline_is_at_most_what_the_api_server_accepts() {
        for duration in ["596523h14m7s", "596523h14m8s", "2000000h"] {
            let lasting = lasting(duration.parse().unwrap());
            assert_eq!(lasting, i64::from(i32::MAX), "{duration}");
        }
        let ending = ending_by(Timestamp::UNIX_EPOCH, Timestamp::MAX);
        assert_eq!(ending, i64::from(i32::MAX));
    }

    #[test]
    fn deadline_is_at_least_a_second() {
        for duration in ["0s", "-5s", "1ns", "1s"] {
            assert_eq!(lasting(duration.parse().unwrap()), 1, "{duration}");
        }
    }
}
