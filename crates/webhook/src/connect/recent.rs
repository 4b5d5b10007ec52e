//! Refusals of a moment ago: a denied kubectl exec tries again at once over the older protocol, and
//! whoever fails in a loop must not fill the record.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// For how long the same refusal is the same.
const SAME: SignedDuration = SignedDuration::from_secs(5);
/// How many are remembered.
const REMEMBERED: usize = 4096;

/// What was refused lately, by what makes two the same.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<HashMap<String, Timestamp>>);

impl Recent {
    /// Whether this was refused a moment ago, for the first time in that while.
    pub(super) fn is_known(&self, key: String, now: Timestamp) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |at: &Timestamp| now.duration_since(*at).abs() < SAME;
        if known.get(&key).is_some_and(fresh) {
            return true;
        }
        if known.len() >= REMEMBERED {
            known.retain(|_, at| fresh(at));
            if known.len() >= REMEMBERED {
                known.clear();
            }
        }
        known.insert(key, now);
        false
    }
}

/// For how long events about refusals are counted.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);
/// How many of them one user causes in that while.
const EVENTS: u32 = 20;

/// Events about refusals are a courtesy to whoever runs the pod; each is a write that the refused
/// user causes.
#[derive(Debug, Default)]
pub(super) struct Courtesy(Mutex<HashMap<String, (Timestamp, u32)>>);

impl Courtesy {
    /// Whether there is to be an event about one more refusal of this user.
    pub(super) fn is_due(&self, user: &str, now: Timestamp) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn a_refusal_is_the_same_for_a_moment_and_memory_is_bounded() {
        let recent = Recent::default();
        let start = Timestamp::UNIX_EPOCH;
        assert!(!recent.is_known("a".into(), start));
        assert!(recent.is_known("a".into(), start + SignedDuration::from_millis(40)));
        assert!(!recent.is_known("b".into(), start));
        assert!(!recent.is_known("a".into(), start + SAME));
        for number in 0..3 * REMEMBERED {
            recent.is_known(number.to_string(), start);
        }
        assert!(recent.0.lock().unwrap().len() <= REMEMBERED);
    }

    #[test]
    fn one_user_causes_some_events_a_minute_and_many_users_no_endless_memory() {
        let courtesy = Courtesy::default();
        let start = Timestamp::UNIX_EPOCH;
        let due = |at: Timestamp| {
            (0..10_000)
                .filter(|_| courtesy.is_due("mallory", at))
                .count()
        };
        assert_eq!(due(start), 20);
        assert!(courtesy.is_due("alice", start));
        assert_eq!(due(start + WINDOW), 20);
        for number in 0..3 * REMEMBERED {
            courtesy.is_due(&number.to_string(), start + WINDOW);
        }
        assert!(courtesy.0.lock().unwrap().len() <= REMEMBERED);
    }
}
