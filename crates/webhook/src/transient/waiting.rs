//! The limit on windows of one user that wait to open. The operator counts as well, and denies
//! excess bindings that two replicas admitted concurrently.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use oz_admission::Rejection;
use oz_api::labels;
use oz_core::access::seal::Keys;
use oz_core::transient::Kind;
use oz_runtime::Feeds;
use parking_lot::Mutex;

use crate::limits::UNSEEN;
use crate::watched::Watched;

/// The counter of bindings of all kinds that wait for their windows. Each replica counts
/// separately, as for requests.
#[derive(Clone, Default)]
pub(crate) struct WaitingBindings {
    kinds: Vec<Arc<dyn FindBindings>>,
    /// The bindings that this replica admitted, by UID: a watch shows them later.
    admitted: Arc<Mutex<HashMap<String, Admitted>>>,
}

/// A binding that this replica admitted.
struct Admitted {
    user: String,
    at: Timestamp,
}

/// The bindings of one kind.
trait FindBindings: Send + Sync {
    /// Returns the bindings of a user by their UIDs, and whether they wait for their windows.
    fn find<'a>(
        &'a self,
        keys: &'a Keys,
        user: &'a str,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<HashMap<String, bool>, Rejection>>;
}

impl<K: Kind> FindBindings for Watched<K> {
    fn find<'a>(
        &'a self,
        keys: &'a Keys,
        user: &'a str,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<HashMap<String, bool>, Rejection>> {
        async move {
            let theirs = self.select(|binding| is_of(binding, user)).await?;
            let known = theirs.iter().filter_map(|binding| {
                let view = binding.stored().ok()?;
                // The window of a binding without a proven requester never opens.
                let waits = view.waiting(now).is_some() && view.requester(keys).is_ok();
                Some((view.uid().to_owned(), waits))
            });
            Ok(known.collect())
        }
        .boxed()
    }
}

/// Checks whether a binding belongs to a user, by the annotation next to its stamp.
fn is_of<K: Kind>(binding: &K, user: &str) -> bool {
    let annotations = binding.meta().annotations.as_ref();
    let requester = annotations.and_then(|annotations| annotations.get(labels::REQUESTED_BY));
    requester.is_some_and(|requester| requester == user)
}

impl WaitingBindings {
    /// Adds the bindings of a kind to the count.
    pub(crate) fn watch<K: Kind>(&mut self, feeds: &Feeds) {
        self.kinds.push(Arc::new(Watched::<K>(feeds.store())));
    }

    /// Returns the number of bindings of a user that wait for their windows. If `permits` allows one more, that with this
    /// UID counts from then on, except for a dry run.
    ///
    /// # Errors
    /// The failure of a read.
    pub(crate) async fn count(
        &self,
        keys: &Keys,
        (user, uid): (&str, &str),
        (now, dry_run): (Timestamp, bool),
        permits: impl FnOnce(usize) -> bool + Send,
    ) -> Result<usize, Rejection> {
        let mut known = HashMap::new();
        for kind in &self.kinds {
            known.extend(kind.find(keys, user, now).await?);
        }
        let waiting = known.values().filter(|waits| **waits).count();
        // Under one lock: each of two concurrent bindings counts the other.
        let mut admitted = self.admitted.lock();
        admitted.retain(|uid, one| {
            now.duration_since(one.at).abs() < UNSEEN && !known.contains_key(uid)
        });
        let unseen = admitted.values().filter(|one| one.user == user).count();
        let waiting = waiting + unseen;
        if permits(waiting) && !dry_run {
            let user = user.to_owned();
            admitted.insert(uid.to_owned(), Admitted { user, at: now });
        }
        Ok(waiting)
    }

    /// Stops counting an admitted binding with this UID that was denied after it was counted.
    pub(crate) fn forget(&self, uid: &str) {
        self.admitted.lock().remove(uid);
    }
}
