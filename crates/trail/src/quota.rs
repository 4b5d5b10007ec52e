//! The quota of connections of a user that are recorded individually in a minute, and of records of unproven callers. A
//! record is an object in the cluster, and the oldest are deleted if there are too many: without a limit, a user could
//! cause the deletion of the records of others.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use jiff::{SignedDuration, Timestamp};
use strum::IntoEnumIterator as _;

use super::{Action, Mode, Record};

/// The time to which a limit applies.
const WINDOW: SignedDuration = SignedDuration::from_mins(1);
/// The maximum number of users with a quota at one time. Further users exceed the quota until others have not connected
/// for a minute.
const USERS: usize = 4_096;
/// The default number of connections of one user that are recorded in a minute.
pub const CONNECTIONS_PER_MINUTE: u32 = 300;

/// A limit on the number of records that are not counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// The quota of a user for connections with individual records.
    Connections,
    /// The quota of all unproven callers together.
    Unproven,
}

/// Checks whether a record is of an admitted connection in a mode with individual records.
#[must_use]
pub fn is_recorded_each(record: &Record) -> bool {
    let mode = record.details.get(Mode::DETAIL);
    let mut modes = Mode::iter().filter(|mode| mode.records_each());
    match record.action {
        Action::BreakGlassOpened => true,
        Action::SessionOpened => mode.is_some_and(|mode| modes.any(|one| one.title() == mode)),
        _ => false,
    }
}

/// The quota of each user. A burst of as many connections as the limit allows exhausts it; it refills evenly within a
/// minute.
#[derive(Debug)]
pub(super) struct ConnectionQuota {
    /// The limit; no limit if absent.
    per_minute: Option<NonZeroU32>,
    /// The time at which the quota of each user is full again.
    full_at: BTreeMap<String, Timestamp>,
}

impl Default for ConnectionQuota {
    fn default() -> Self {
        Self::new(NonZeroU32::new(CONNECTIONS_PER_MINUTE))
    }
}

impl ConnectionQuota {
    pub(super) fn new(per_minute: Option<NonZeroU32>) -> Self {
        Self {
            per_minute,
            full_at: BTreeMap::new(),
        }
    }

    /// Checks whether one more connection of the user is within the quota, and deducts it.
    pub(super) fn admit(&mut self, user: &str, now: Timestamp) -> bool {
        let Some(per_minute) = self.per_minute else {
            return true;
        };
        let each = WINDOW / i32::try_from(per_minute.get()).unwrap_or(i32::MAX);
        // After a clock is set back, no user is without a quota for longer than a minute.
        let used = |full_at: Timestamp| full_at.duration_since(now).min(WINDOW);
        if !self.full_at.contains_key(user) && self.full_at.len() >= USERS {
            self.full_at
                .retain(|_, full_at| used(*full_at).is_positive());
            if self.full_at.len() >= USERS {
                return false;
            }
        }
        let full_at = self.full_at.entry(user.to_owned()).or_insert(now);
        let used = used(*full_at).max(SignedDuration::ZERO);
        let admits = used + each <= WINDOW;
        let used = if admits { used + each } else { used };
        *full_at = now.checked_add(used).unwrap_or(Timestamp::MAX);
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 60;

    fn quota() -> ConnectionQuota {
        ConnectionQuota::new(NonZeroU32::new(LIMIT))
    }

    fn timestamp(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + seconds)
    }

    fn admitted(quota: &mut ConnectionQuota, user: &str, now: Timestamp) -> usize {
        (0..1_000).filter(|_| quota.admit(user, now)).count()
    }

    #[test]
    fn quota_is_used_up_by_a_burst_and_refills_evenly() {
        let mut quota = quota();
        assert_eq!(admitted(&mut quota, "mallory", timestamp(0)), 60);
        assert_eq!(admitted(&mut quota, "mallory", timestamp(1)), 1);
        assert_eq!(admitted(&mut quota, "mallory", timestamp(31)), 30);
        assert_eq!(admitted(&mut quota, "mallory", timestamp(1_000)), 60);
    }

    #[test]
    fn quota_of_a_user_is_untouched_by_others() {
        let mut quota = quota();
        admitted(&mut quota, "mallory", timestamp(0));
        assert_eq!(admitted(&mut quota, "alice", timestamp(0)), 60);
    }

    #[test]
    fn quota_without_a_limit_admits_all() {
        let mut quota = ConnectionQuota::new(None);
        assert_eq!(admitted(&mut quota, "alice", timestamp(0)), 1_000);
        assert!(quota.full_at.is_empty());
    }

    #[test]
    fn users_beyond_the_bound_exceed_the_quota_until_others_are_idle() {
        let mut quota = quota();
        for number in 0..USERS {
            assert!(quota.admit(&number.to_string(), timestamp(0)));
        }
        assert!(!quota.admit("one more", timestamp(0)));
        assert!(quota.admit("7", timestamp(0)));
        assert!(quota.admit("one more", timestamp(60)));
        assert!(quota.full_at.len() <= USERS);
    }

    #[test]
    fn clock_that_is_set_back_costs_a_minute_at_most() {
        let mut quota = quota();
        assert_eq!(admitted(&mut quota, "alice", timestamp(100_000)), 60);
        assert_eq!(admitted(&mut quota, "alice", timestamp(0)), 0);
        assert_eq!(admitted(&mut quota, "alice", timestamp(60)), 60);
    }
}
