//! The rate limit for repairs of a registration.
//!
//! A single external change is repaired within milliseconds. Two programs that each revert the other's
//! changes, such as two versions during a rolling update, would write without end: the limit slows them
//! down.

use std::time::{Duration, Instant};

/// The number of repairs without a pause.
const AT_ONCE: u32 = 20;
/// The interval of one repair after them.
const ONE_EVERY: Duration = Duration::from_secs(5);

/// The rest of [`AT_ONCE`].
#[derive(Debug)]
pub(super) struct Budget {
    left: u32,
    counted: Option<Instant>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            left: AT_ONCE,
            counted: None,
        }
    }
}

impl Budget {
    /// Counts a repair.
    pub(super) fn spend(&mut self, now: Instant) {
        self.earn(now);
        self.left = self.left.saturating_sub(1);
    }

    /// Returns the pause before the next repair.
    pub(super) fn pause(&mut self, now: Instant) -> Duration {
        self.earn(now);
        if self.left == 0 {
            ONE_EVERY
        } else {
            Duration::ZERO
        }
    }

    fn earn(&mut self, now: Instant) {
        let counted = *self.counted.get_or_insert(now);
        let earned = now.duration_since(counted).as_secs() / ONE_EVERY.as_secs();
        if earned > 0 {
            self.left = u32::try_from(earned)
                .unwrap_or(AT_ONCE)
                .saturating_add(self.left)
                .min(AT_ONCE);
            self.counted = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_repairs_are_made_at_once_and_a_fight_is_slowed_down() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        for _ in 0..AT_ONCE {
            assert_eq!(budget.pause(start), Duration::ZERO);
            budget.spend(start);
        }
        assert_eq!(budget.pause(start), ONE_EVERY);
        assert_eq!(
            budget.pause(start + ONE_EVERY),
            Duration::ZERO,
            "one more is earned"
        );
        budget.spend(start + ONE_EVERY);
        assert_eq!(budget.pause(start + ONE_EVERY), ONE_EVERY);
        let later = start + ONE_EVERY * 1000;
        assert_eq!(budget.pause(later), Duration::ZERO);
        assert_eq!(budget.left, AT_ONCE, "rest does not add up without end");
    }
}
