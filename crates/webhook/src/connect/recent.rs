//! Refusals of a moment ago: a denied kubectl exec tries again at once over the older protocol, which
//! is no second attempt; and whoever fails in a loop must not fill a pod's events.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// How soon the second try of one kubectl comes.
const AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// How many are remembered.
const REMEMBERED: usize = 4096;

/// What was refused lately, by a digest of what makes two the same.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<HashMap<String, Tries>>);

#[derive(Debug)]
struct Tries {
    last: Timestamp,
    count: u64,
}

impl Recent {
    /// Whether this is the second try of what was refused a moment ago. A third one, and what goes
    /// on from there, is no kubectl's: flood control counts those.
    pub(super) fn is_second(&self, key: String, now: Timestamp) -> bool {
        let mut known = self.0.lock();
        let fresh = |tries: &Tries| now.duration_since(tries.last).abs() < AGAIN;
        if let Some(tries) = known.get_mut(&key)
            && fresh(tries)
        {
            tries.last = now;
            tries.count = tries.count.saturating_add(1);
            return tries.count == 2;
        }
        if known.len() >= REMEMBERED {
            known.retain(|_, tries| fresh(tries));
            if known.len() >= REMEMBERED {
                known.clear();
            }
        }
        known.insert(
            key,
            Tries {
                last: now,
                count: 1,
            },
        );
        false
    }
}

/// For how long events about refusals are counted.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);
/// How many of them one user causes in that while.
const EVENTS: u32 = 20;

/// Bounds the events about refusals, which are for whoever runs the pod: each is a write that the
/// refused user causes.
#[derive(Debug, Default)]
pub(super) struct EventLimit(Mutex<HashMap<String, (Timestamp, u32)>>);

impl EventLimit {
    /// Whether there is to be an event about one more refusal of this user.
    pub(super) fn is_due(&self, user: &str, now: Timestamp) -> bool {
        let mut known = self.0.lock();
        let fresh = |since: &Timestamp| now.duration_since(*since).abs() < WINDOW;
        if known.len() >= REMEMBERED && !known.contains_key(user) {
            known.retain(|_, (since, _)| fresh(since));
            if known.len() >= REMEMBERED {
                return false;
            }
        }
        let (since, count) = known.entry(user.to_owned()).or_insert((now, 0));
        if !fresh(since) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= EVENTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_second_try_is_passed_over_and_memory_is_bounded() {
        let recent = Recent::default();
        let at = |millis| Timestamp::UNIX_EPOCH + SignedDuration::from_millis(millis);
        let second = |key: &str, millis| recent.is_second(key.to_owned(), at(millis));
        assert!(!second("a", 0));
        assert!(second("a", 40));
        assert!(!second("b", 40));
        // Somebody tries in a loop.
        assert!((1..10_000).all(|number| !second("a", 40 + number * 6)));
        // Later it is a kubectl again.
        assert!(!second("a", 70_000));
        assert!(second("a", 70_040));
        for number in 0..3 * REMEMBERED {
            second(&number.to_string(), 80_000);
        }
        assert!(recent.0.lock().len() <= REMEMBERED);
    }

    #[test]
    fn one_user_causes_some_events_a_minute_and_many_users_no_endless_memory() {
        let limit = EventLimit::default();
        let start = Timestamp::UNIX_EPOCH;
        let due = |at: Timestamp| (0..10_000).filter(|_| limit.is_due("mallory", at)).count();
        assert_eq!(due(start), 20);
        assert!(limit.is_due("alice", start));
        assert_eq!(due(start + WINDOW), 20);
        for number in 0..3 * REMEMBERED {
            limit.is_due(&number.to_string(), start + WINDOW);
        }
        assert!(limit.0.lock().len() <= REMEMBERED);
    }
}
