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
}
