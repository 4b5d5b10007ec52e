//! Transient errors during a wait: the API server is busy, or a connection breaks. They are retried, with increasing
//! pauses; the caller has the deadline.

use std::time::Duration;

use crate::failure::{Failure, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The current failure, if there is one.
#[derive(Debug)]
pub struct Retry {
    pause: Duration,
    last: Option<Failure>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            pause: FIRST_PAUSE,
            last: None,
        }
    }
}

impl Retry {
    /// Pauses after a transient failure; returns any other failure.
    pub async fn with(&mut self, failure: Failure) -> Result<()> {
        if !failure.passes() {
            return Err(failure);
        }
        self.last = Some(failure);
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// Checks whether the last attempt failed.
    pub fn has_failed(&self) -> bool {
        self.last.is_some()
    }

    /// Records a response: the state is known, but one successful response does not shorten the pause.
    pub fn eased(&mut self) {
        self.last = None;
    }

    /// Records the end of the failures.
    pub fn over(&mut self) {
        *self = Self::default();
    }

    /// Returns the failure that persisted until the end, if there is one.
    pub fn at_the_end(self) -> Option<Failure> {
        self.last
    }
}
