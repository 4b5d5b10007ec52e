//! What reviews may take at once, in number and in memory.
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

/// A body of more than this is large.
const LARGE_BODY: usize = 256 << 10;
/// Objects that take more than this when they are decoded are large.
const LARGE_OBJECTS: usize = 1 << 20;
/// Which part of everything reviews of unproven callers may take.
const UNPROVEN_PART: usize = 4;

/// What the hooks of one failure policy share.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// For bodies as they come in.
    bodies: Budget,
    /// For the objects in them, decoded.
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

    /// Lets one more review begin, unless there are too many for longer than `wait`.
    async fn begin(&self, wait: Duration) -> Option<SemaphorePermit<'_>> {
        timeout(wait, self.reviews.acquire()).await.ok()?.ok()
    }
}

/// A place or memory, given back when it is dropped: of those that unproven callers share, and of all.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    _of_unproven: Option<SemaphorePermit<'a>>,
    _of_all: SemaphorePermit<'a>,
}

/// What the review of a caller may take of a capacity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share<'a> {
    all: &'a Capacity,
    /// What it shares with other unproven callers, if it is one.
    unproven: Option<&'a Capacity>,
}

impl<'a> Share<'a> {
    /// All of it.
    pub(crate) const fn of_all(all: &'a Capacity) -> Self {
        Self {
            all,
            unproven: None,
        }
    }

    /// Memory for a body.
    pub(crate) async fn body(self, bytes: usize, wait: Duration) -> Option<Room<'a>> {
        let memory = |capacity: &'a Capacity| capacity.bodies.take(bytes, wait);
        self.room(memory).await
    }

    /// Memory for decoded objects.
    pub(crate) async fn objects(self, bytes: usize, wait: Duration) -> Option<Room<'a>> {
        let memory = |capacity: &'a Capacity| capacity.objects.take(bytes, wait);
        self.room(memory).await
    }

    /// A place among the reviews under way.
    pub(crate) async fn begin(self, wait: Duration) -> Option<Room<'a>> {
        self.room(|capacity: &'a Capacity| capacity.begin(wait))
            .await
    }

    /// In this order: an unproven caller that waits for others of its kind takes nothing from anybody.
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

/// What all hooks share with those of their failure policy.
#[derive(Debug)]
pub(crate) struct Capacities {
    closed: Capacity,
    open: Capacity,
    /// What unproven callers share, whichever hooks they call.
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

    /// What a caller may take of the capacity of the hooks that fail like this. `confined` says whether unproven
    /// callers have less.
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
