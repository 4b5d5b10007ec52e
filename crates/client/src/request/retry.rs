//! Errors that pass while something is waited for: the API server is busy, or a connection breaks.
//! They are tried over, ever more slowly; whoever waits has the deadline.

use std::time::Duration;

use crate::failure::{Failure, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What is wrong at the moment, if anything is.
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
    /// Rests after a failure that passes; any other stays one.
    pub async fn with(&mut self, failure: Failure) -> Result<()> {
        if !failure.passes() {
            return Err(failure);
        }
        self.last = Some(failure);
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// Whether what was tried last failed.
    pub fn has_failed(&self) -> bool {
        self.last.is_some()
    }

    /// An answer came: how things are is known, but one good answer does not quicken the pace.
    pub fn eased(&mut self) {
        self.last = None;
    }

    /// There is none any more.
    pub fn over(&mut self) {
        *self = Self::default();
    }

    /// What was wrong until the end, if it was.
    pub fn at_the_end(self) -> Option<Failure> {
        self.last
    }
}
