//! What reviews may take at once, in number and in memory.
//!
//! Hooks that fail open have a capacity of their own. What they have no room for goes on as if there
//! were no hook, and nobody is told; so nobody may take their room through the others.

use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Limits, budget::Budget};
use crate::hook::FailurePolicy;

/// A body of more than this is large.
const LARGE_BODY: usize = 256 << 10;
/// Objects that take more than this when they are decoded are large.
const LARGE_OBJECTS: usize = 1 << 20;

/// What the hooks of one failure policy share.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// For bodies as they come in.
    pub(crate) bodies: Budget,
    /// For the objects in them, decoded.
    pub(crate) objects: Budget,
    reviews: Semaphore,
}

impl Capacity {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            bodies: Budget::new(limits.bodies, LARGE_BODY),
            objects: Budget::new(limits.objects, LARGE_OBJECTS),
            reviews: Semaphore::new(limits.concurrent_reviews),
        }
    }

    /// Lets one more review begin, unless there are too many.
    pub(crate) fn begin(&self) -> Option<SemaphorePermit<'_>> {
        self.reviews.try_acquire().ok()
    }
}

/// What all hooks share with those of their failure policy.
#[derive(Debug)]
pub(crate) struct Capacities {
    closed: Capacity,
    open: Capacity,
}

impl Capacities {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            closed: Capacity::new(limits),
            open: Capacity::new(limits),
        }
    }

    /// That of the hooks that fail like this.
    pub(crate) fn of(&self, policy: FailurePolicy) -> &Capacity {
        match policy {
            FailurePolicy::Fail => &self.closed,
            FailurePolicy::Ignore => &self.open,
        }
    }
}
