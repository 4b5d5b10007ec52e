//! The API server's clock, by which access expires.
//! See docs/adr/0005-the-api-servers-clock.md.

use std::time::Duration;

use jiff::Timestamp;
use oz_core::kinds::AccessRequest;

use crate::cluster::{Clocks, Cluster};

/// A clock for the remaining time of a grant.
///
/// The API server's clock decides. The local clock is used if it agrees with the time that the API server wrote at the
/// creation, and is corrected by the difference if not.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    ahead: jiff::SignedDuration,
}

impl Clock {
    /// Returns the local clock, for use without a time to compare it with.
    pub fn local() -> Self {
        Self {
            ahead: jiff::SignedDuration::ZERO,
        }
    }

    /// Returns the clock according to the current time of the API server.
    pub async fn of_server(cluster: &Cluster) -> Self {
        match cluster.clocks().await {
            Ok(Clocks {
                before,
                server: Some(server),
                ..
            }) => Self::compare(before, server),
            _ => Self::local(),
        }
    }

    /// Returns the clock according to an object that was created just now.
    pub fn at_creation<R: AccessRequest>(created: &R) -> Self {
        let Some(time) = created.meta().creation_timestamp.as_ref() else {
            return Self::local();
        };
        Self::compare(Timestamp::now(), time.0)
    }

    fn compare(ours: Timestamp, created: Timestamp) -> Self {
        // Creation times are whole seconds, and the response took some time.
        const TOLERATED: jiff::SignedDuration = jiff::SignedDuration::from_secs(3);
        let ahead = ours.duration_since(created);
        let agrees = ahead.abs() <= TOLERATED;
        Self {
            ahead: if agrees {
                jiff::SignedDuration::ZERO
            } else {
                ahead
            },
        }
    }

    /// Returns the current time of the API server.
    pub fn now(self) -> Timestamp {
        Timestamp::now()
            .checked_sub(self.ahead)
            .unwrap_or(Timestamp::MAX)
    }

    /// Returns the remaining time until then; zero, if it is past.
    pub fn left(self, until: Timestamp) -> Duration {
        Duration::try_from(until.duration_since(self.now())).unwrap_or(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_corrected_and_one_that_agrees_is_believed() {
        let created: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let second = jiff::SignedDuration::from_secs(1);
        assert!(Clock::compare(created + second, created).ahead.is_zero());
        let hour = jiff::SignedDuration::from_hours(1);
        assert_eq!(Clock::compare(created + hour, created).ahead, hour);
        assert_eq!(Clock::compare(created - hour, created).ahead, -hour);
    }
}
