//! The pause before the next attempt: by the class of the failure and the number of failures.

use std::time::Duration;

use oz_core::controller::FailureClass;

use super::queue::Lane;

/// Returns the pause after the `failures`-th failure in a row, counted from zero; `None` if only a
/// change of the object, or of an object that it refers to, can help. Urgent passes remove access,
/// so they are retried more often.
pub(crate) fn pause(class: FailureClass, failures: u32, lane: Lane) -> Option<Duration> {
    let (first, longest) = match (class, lane) {
        (FailureClass::Invalid, _) => return None,
        (FailureClass::Transient, Lane::Urgent) => (50, 2_000),
        (FailureClass::Transient, Lane::Ordinary) => (50, 30_000),
        (FailureClass::Conflict, _) => (1_000, 60_000),
    };
    let factor = 2_u64.saturating_pow(failures);
    Some(Duration::from_millis(
        longest.min(factor.saturating_mul(first)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_that_is_lower_for_what_takes_access_away() {
        use FailureClass::{Conflict, Invalid, Transient};
        use Lane::{Ordinary, Urgent};
        for (class, failures, lane, milliseconds) in [
            (Transient, 0, Ordinary, Some(50)),
            (Transient, 1, Ordinary, Some(100)),
            (Transient, 9, Ordinary, Some(25_600)),
            (Transient, 10, Ordinary, Some(30_000)),
            (Transient, u32::MAX, Ordinary, Some(30_000)),
            (Transient, 0, Urgent, Some(50)),
            (Transient, 20, Urgent, Some(2_000)),
            (Conflict, 0, Ordinary, Some(1_000)),
            (Conflict, 63, Urgent, Some(60_000)),
            (Invalid, 0, Ordinary, None),
            (Invalid, 5, Urgent, None),
        ] {
            let expected = milliseconds.map(Duration::from_millis);
            assert_eq!(
                pause(class, failures, lane),
                expected,
                "{class} {failures} {lane:?}"
            );
        }
    }
}
