//! The limits of concurrent reviews, in number and in memory.
//!
//! Hooks that fail open have a separate capacity. Beyond it, the API server admits the object as if the hook did not
//! exist, and reports nothing; so reviews of other hooks must not use this capacity. Reviews of unproven callers are
//! limited to a fixed part of each capacity: a pod that reaches the port cannot fill it.

use std::time::Duration;

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::{Limits, budget::Budget};
use crate::{caller::Caller, hook::FailurePolicy};

/// The size above which a body is large.
const LARGE_BODY: usize = 256 << 10;
/// The decoded size above which objects are large.
const LARGE_OBJECTS: usize = 1 << 20;
/// The divisor of the part that reviews of unproven callers may use.
const UNPROVEN_PART: usize = 4;

/// The capacity that the hooks of one failure policy share.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// The memory for bodies as received.
    bodies: Budget,
    /// The memory for their decoded objects.
    objects: Budget,
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

    /// Begins a review, unless there are too many for longer than `wait`.
    async fn begin(&self, wait: Duration) -> Option<SemaphorePermit<'_>> {
        timeout(wait, self.reviews.acquire()).await.ok()?.ok()
    }
}

/// A slot or memory, released when it is dropped: from the share of unproven callers, and from the whole.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    _of_unproven: Option<SemaphorePermit<'a>>,
    _of_all: SemaphorePermit<'a>,
}

/// The share of a capacity that the review of a caller may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share<'a> {
    all: &'a Capacity,
    /// The capacity of all unproven callers, if the caller is unproven.
    unproven: Option<&'a Capacity>,
}

impl<'a> Share<'a> {
    /// Creates a share of the whole capacity.
    pub(crate) const fn of_all(all: &'a Capacity) -> Self {
        Self {
            all,
            unproven: None,
        }
    }

    /// Takes memory for a body.
    pub(crate) async fn body(self, bytes: usize, wait: Duration) -> Option<Room<'a>> {
        let memory = |capacity: &'a Capacity| capacity.bodies.take(bytes, wait);
        self.room(memory).await
    }

    /// Takes memory for decoded objects.
    pub(crate) async fn objects(self, bytes: usize, wait: Duration) -> Option<Room<'a>> {
        let memory = |capacity: &'a Capacity| capacity.objects.take(bytes, wait);
        self.room(memory).await
    }

    /// Takes a slot for a review.
    pub(crate) async fn begin(self, wait: Duration) -> Option<Room<'a>> {
        self.room(|capacity: &'a Capacity| capacity.begin(wait))
            .await
    }

    /// Takes from the share of unproven callers first: an unproven caller that waits for other unproven
    /// callers takes nothing from proven ones.
    async fn room<F>(self, take: impl Fn(&'a Capacity) -> F) -> Option<Room<'a>>
    where
        F: Future<Output = Option<SemaphorePermit<'a>>>,
    {
        let of_unproven = match self.unproven {
            Some(unproven) => Some(take(unproven).await?),
            None => None,
        };
        Some(Room {
            _of_unproven: of_unproven,
            _of_all: take(self.all).await?,
        })
    }
}

/// The capacities that hooks share with the hooks of the same failure policy.
#[derive(Debug)]
pub(crate) struct Capacities {
    closed: Capacity,
    open: Capacity,
    /// The capacity that unproven callers share, regardless of the hooks that they call.
    unproven: Capacity,
}

impl Capacities {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            closed: Capacity::new(limits),
            open: Capacity::new(limits),
            unproven: Capacity::new(&Limits {
                concurrent_reviews: limits.concurrent_reviews.div_ceil(UNPROVEN_PART),
                bodies: limits.bodies / UNPROVEN_PART,
                objects: limits.objects / UNPROVEN_PART,
                ..limits.clone()
            }),
        }
    }

    /// Returns the share of a caller in the capacity of the hooks with this failure policy. `confined` is
    /// true if unproven callers have less.
    pub(crate) fn share(&self, policy: FailurePolicy, caller: Caller, confined: bool) -> Share<'_> {
        Share {
            all: match policy {
                FailurePolicy::Fail => &self.closed,
                FailurePolicy::Ignore => &self.open,
            },
            unproven: (confined && !caller.is_proven()).then_some(&self.unproven),
        }
    }
}
