//! How often a registration is put right at once.
//!
//! One hand that breaks it is undone within milliseconds. Two programs that each put
//! right what the other did, such as two versions during a rolling update, would write
//! without end: they are slowed down.

use std::time::{Duration, Instant};

/// So many repairs are made at once.
const AT_ONCE: u32 = 20;
/// After them, one in this time.
const ONE_EVERY: Duration = Duration::from_secs(5);

/// What is left of [`AT_ONCE`].
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
    /// A repair was made.
    pub(super) fn spend(&mut self, now: Instant) {
        self.earn(now);
        self.left = self.left.saturating_sub(1);
    }

    /// How long to wait before the next one.
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
