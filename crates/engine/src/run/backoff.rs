//! How long to wait before trying again: by the class of the failure and how often it happened.

use std::time::Duration;

use oz_core::controller::FailureClass;

use super::queue::Lane;

/// The pause after the `failures`-th failure in a row, counted from zero; `None` if only a change
/// of the object, or of what it refers to, can help. What is urgent takes access away, so that it
/// is tried more often.
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
