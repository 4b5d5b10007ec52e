//! Locks: who may change or remove one, on record, and whether one keeps somebody from what they ask for.

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

/// The locks that there are, as far as a watch has shown them. The operator looks at them again.
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

    /// Whether this may be asked for.
    ///
    /// # Errors
    /// Why not.
    pub(crate) async fn admit(&self, access: &Access<'_>, now: Timestamp) -> Result<(), Rejection> {
        let admitted = self.all(self.0.all().await?).admit(access, now);
        admitted.map_err(|not| match not {
            NotAdmitted::Locked(lock) => denied(lock.denial()),
            NotAdmitted::Unreadable(failure) => {
                Rejection::new(503, failure.reason, failure.message)
            }
        })
    }

    /// Whether somebody may use a grant that stands: the operator may be away that would end it.
    ///
    /// # Errors
    /// Why not.
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
