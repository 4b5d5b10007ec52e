//! What is new about a run, and what is in its way.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::harness::{HarnessRunStatus, RunEvent};

/// Those of `now` that were not among `before`. Both end with the newest; of `before` the oldest may be gone.
pub fn fresh<'a>(before: &[RunEvent], now: &'a [RunEvent]) -> &'a [RunEvent] {
    let most = before.len().min(now.len());
    let known = (0..=most).rev().find(|&count| {
        let (ends, begins) = (
            before.iter().rev().take(count).rev(),
            now.iter().take(count),
        );
        ends.eq(begins)
    });
    now.get(known.unwrap_or_default()..).unwrap_or_default()
}

/// The conditions of a run that does not run yet which do not hold: what is in its way.
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
            // Two that are alike.
            ("aa", "aaa", "a"),
            ("aba", "abab", "b"),
            ("abc", "", ""),
        ] {
            let (before, now, new) = (events(before), events(now), events(new));
            assert_eq!(fresh(&before, &now), new, "{before:?} {now:?}");
        }
    }
}
