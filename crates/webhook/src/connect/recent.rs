//! Recent denials: a denied kubectl exec retries at once over the older protocol, which is no
//! second attempt; and a user who fails in a loop must not fill a pod's events.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// The maximum time between the two tries of one kubectl.
const AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// The maximum number of entries.
const REMEMBERED: usize = 4096;

/// The recent denials, by a digest of the fields that identify equal tries.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<HashMap<String, Tries>>);

#[derive(Debug)]
struct Tries {
    last: Timestamp,
    count: u64,
}

impl Recent {
    /// Checks whether this is the second try of a connection that was denied a moment ago. A third
    /// try and all further ones are not from the same kubectl: flood control counts those.
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

/// The period over which events about denials are counted.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);
/// The maximum number of events about one user in that period.
const EVENTS: u32 = 20;

/// The limit on events about denials, which are for the owner of the pod: each is a write that the
/// denied user causes.
#[derive(Debug, Default)]
pub(super) struct EventLimit(Mutex<HashMap<String, (Timestamp, u32)>>);

impl EventLimit {
    /// Checks whether one more denial of this user gets an event.
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
        // A user tries in a loop.
        assert!((1..10_000).all(|number| !second("a", 40 + number * 6)));
        // A later pair of tries is a kubectl again.
        assert!(!second("a", 70_000));
        assert!(second("a", 70_040));
        for number in 0..3 * REMEMBERED {
            second(&number.to_string(), 80_000);
        }
        assert!(recent.0.lock().len() <= REMEMBERED);
    }

    #[test]
    fn events_per_user_and_remembered_users_are_limited() {
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
