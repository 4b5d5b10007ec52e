//! Rate limits: one token bucket for each key. The number of keys is bounded: beyond it, the keys that were idle for
//! the longest time are removed.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// One bucket for each key.
#[derive(Debug)]
pub(crate) struct Buckets<K> {
    /// The time to refill one token.
    every: Duration,
    burst: u32,
    most: usize,
    /// The time at which each bucket is full again.
    full_at: Mutex<HashMap<K, Instant>>,
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    /// Creates buckets that refill `per_second`, hold `burst` tokens, and exist for at most `most` keys.
    pub(crate) fn new(per_second: u32, burst: u32, most: usize) -> Self {
        Self {
            every: Duration::from_secs(1) / per_second.max(1),
            burst: burst.max(1),
            most: most.max(1),
            full_at: Mutex::default(),
        }
    }

    /// Takes one token.
    ///
    /// # Errors
    /// The time until a token is available.
    pub(crate) fn take(&self, key: &K, now: Instant) -> Result<(), Duration> {
        let mut all = self.full_at.lock();
        let full = all.get(key).copied().unwrap_or(now).max(now) + self.every;
        let room = self.every * self.burst;
        let excess = full.saturating_duration_since(now).saturating_sub(room);
        if !excess.is_zero() {
            return Err(excess);
        }
        if all.len() >= self.most && !all.contains_key(key) {
            make_room(&mut all, now);
        }
        all.insert(key.clone(), full);
        Ok(())
    }

    /// Returns the time until a token is available, without taking it; zero if one is available.
    pub(crate) fn wait(&self, key: &K, now: Instant) -> Duration {
        let all = self.full_at.lock();
        let full = all.get(key).copied().unwrap_or(now).max(now) + self.every;
        let room = self.every * self.burst;
        full.saturating_duration_since(now).saturating_sub(room)
    }
}

/// Removes the full buckets, which changes nothing for their keys; if there are none, removes the half that is nearest
/// to full.
fn make_room<K: Hash + Eq + Clone>(all: &mut HashMap<K, Instant>, now: Instant) {
    let before = all.len();
    all.retain(|_, full| *full > now);
    if all.len() < before {
        return;
    }
    let mut ends: Vec<Instant> = all.values().copied().collect();
    ends.sort_unstable();
    if let Some(median) = ends.get(ends.len() / 2).copied() {
        all.retain(|_, full| *full > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_so_many_a_second_each_on_their_own() {
        let buckets = Buckets::new(5, 10, 100);
        let start = Instant::now();
        assert_eq!(
            (0..50)
                .filter(|_| buckets.take(&"a", start).is_ok())
                .count(),
            10
        );
        assert_eq!(buckets.take(&"a", start), Err(Duration::from_millis(200)));
        assert_eq!(buckets.wait(&"a", start), Duration::from_millis(200));
        assert!(buckets.take(&"b", start).is_ok());
        assert_eq!(buckets.wait(&"b", start), Duration::ZERO);
        let later = start + Duration::from_secs(1);
        assert_eq!(
            (0..50)
                .filter(|_| buckets.take(&"a", later).is_ok())
                .count(),
            5
        );
        // A bucket holds no more than a burst.
        let much_later = start + Duration::from_secs(3600);
        assert_eq!(
            (0..50)
                .filter(|_| buckets.take(&"a", much_later).is_ok())
                .count(),
            10
        );
    }

    #[test]
    fn memory_is_bounded_and_who_is_limited_stays_so_longest() {
        let buckets = Buckets::new(1, 10, 100);
        let start = Instant::now();
        while buckets.take(&u32::MAX, start).is_ok() {}
        for key in 0..150 {
            let _ = buckets.take(&key, start);
            assert!(buckets.full_at.lock().len() <= 100);
        }
        assert!(buckets.take(&u32::MAX, start).is_err());
    }
}
