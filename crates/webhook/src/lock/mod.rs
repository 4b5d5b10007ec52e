//! Locks: the hook that checks and records changes and removals, and the check whether a lock
//! blocks a request.

mod hooks;
mod validate;

use std::sync::Arc;

use jiff::Timestamp;
use oz_admission::Rejection;
use oz_api::{AccessLock, Requester};
use oz_core::access::grant::Grant;
use oz_core::access::lock::{self, Access, NotAdmitted};
use oz_core::connect::{self, Refusal};
use oz_runtime::Feeds;

use crate::refusal::denied;
use crate::watched::Watched;

pub(crate) use hooks::hooks;

/// The existing locks, as a watch has shown them. The operator checks them again.
#[derive(Clone)]
pub(crate) struct Locks(Watched<AccessLock>);

impl Locks {
    pub(crate) fn new(feeds: &Feeds) -> Self {
        Self(Watched(feeds.store()))
    }

    fn all(&self, all: Vec<Arc<AccessLock>>) -> lock::Locks {
        let unreadable = self.0.0.undecodable();
        lock::Locks { all, unreadable }
    }

    /// Returns all locks.
    ///
    /// # Errors
    /// They are not listed yet.
    pub(crate) async fn read(&self) -> Result<lock::Locks, Rejection> {
        Ok(self.all(self.0.all().await?))
    }

    /// Checks whether a lock blocks this approval or denial.
    ///
    /// # Errors
    /// The lock, or the reason why locks cannot be read.
    pub(crate) async fn admit(&self, access: &Access<'_>, now: Timestamp) -> Result<(), Rejection> {
        let admitted = self.read().await?.admit(access, now);
        admitted.map_err(|not| match not {
            NotAdmitted::Locked(lock) => denied(lock.denial()),
            NotAdmitted::Unreadable(failure) => {
                Rejection::new(503, failure.reason, failure.message)
            }
        })
    }

    /// Checks whether a user may use an existing grant: the operator, which would end it, may be
    /// unavailable.
    ///
    /// # Errors
    /// The lock that blocks the use.
    pub(crate) fn lets_use(
        &self,
        grant: &Grant,
        user: &Requester,
        now: Timestamp,
    ) -> Result<(), Box<Refusal>> {
        let locks = self.all(self.0.0.objects());
        let granted = locks.against(&Access::granted(grant), now);
        let used = || locks.against(&Access::used(grant, user), now);
        match granted.or_else(used) {
            None => Ok(()),
            Some(lock) => Err(Box::new(connect::locked(&lock))),
        }
    }
}
