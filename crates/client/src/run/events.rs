//! The new events of a run, and the conditions that block it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::harness::{HarnessRunStatus, RunEvent};

/// Returns the events of `now` that are not in `before`. Both end with the newest; the oldest of `before` may be gone.
pub fn fresh<'a>(before: &[RunEvent], now: &'a [RunEvent]) -> &'a [RunEvent] {
    let most = before.len().min(now.len());
    let known = (1..=most).rev().find(|&count| {
        let (ends, begins) = (
            before.iter().rev().take(count).rev(),
            now.iter().take(count),
        );
        ends.eq(begins)
    });
    let split = known.and_then(|known| now.split_at_checked(known));
    split.map_or(now, |(_, fresh)| fresh)
}

/// Returns the conditions that do not hold of a run that does not run yet: they block it.
pub fn in_the_way(status: &HarnessRunStatus) -> impl Iterator<Item = &Condition> {
    let conditions = status.conditions.iter();
    conditions.filter(|known| known.status != "True" && known.type_ != "Completed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(names: &str) -> Vec<RunEvent> {
        let event = |letter: char| RunEvent {
            summary: letter.to_string(),
            ..RunEvent::default()
        };
        names.chars().map(event).collect()
    }

    #[test]
    fn of_a_ring_that_turns_each_event_is_new_once() {
        for (before, now, new) in [
            ("", "", ""),
            ("", "ab", "ab"),
            ("ab", "ab", ""),
            ("ab", "abc", "c"),
            ("abc", "bcd", "d"),
            ("abc", "def", "def"),
            // Two equal events.
            ("aa", "aaa", "a"),
            ("aba", "abab", "b"),
            ("abc", "", ""),
        ] {
            let (before, now, new) = (events(before), events(now), events(new));
            assert_eq!(fresh(&before, &now), new, "{before:?} {now:?}");
        }
    }
}
