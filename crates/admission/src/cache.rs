//! A cache of one kind: the objects from a watch, shared by all parts of the process.

use std::{fmt, sync::Arc};

use futures::FutureExt;
use kube::Resource;
use oz_runtime::{Kind, Store};
use parking_lot::Mutex;
use tokio::sync::watch as channel;

use crate::{
    rules::{ResourceRule, Rules, Source},
    verdict::Rejection,
};

/// A cache of the objects of one kind, filled by a watch. Hooks, watchers and tasks read it without calls
/// to the API server; clones share one content, and two caches of the same objects share one watch.
///
/// A cache is declared with [`ManagerBuilder::cache`](crate::ManagerBuilder::cache) before the manager is
/// built. It fills while the manager runs, which is not ready before every cache is complete. Reading an
/// incomplete cache is an error, never an empty result.
///
/// The content lags behind the API server: usually by milliseconds, and during an outage of the API server
/// by the duration of the outage (`<fingerprint>_watch_age_seconds` reports the lag). A user who just
/// stored an object may call a hook that does not see the object yet. So use the cache for decisions that
/// tolerate the lag, and call the API server for all others. The cache omits objects that do not decode.
///
/// ```
/// # use oz_admission::{Cache, Endpoint, Hook, Manager, Notes, Rejection, Review, Selection, testing, validate_fn};
/// # use k8s_openapi::api::core::v1::{Namespace, Pod};
/// # use kube::ResourceExt;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (client, _) = testing::client();
/// let mut builder = Manager::builder(client, "acme");
/// let namespaces: Cache<Namespace> = builder.cache(Selection::default());
/// let closed = validate_fn(move |_, review: &Review<Pod>| {
///     let name = review.namespace.as_deref().unwrap_or_default();
///     match namespaces.get(None, name)? {
///         Some(namespace) if namespace.labels().contains_key("closed") => {
///             Err(Rejection::forbidden("Closed", "this namespace takes no pods"))
///         }
///         _ => Ok(Notes::none()),
///     }
/// });
/// let builder = builder.hook(Hook::validating("closed", closed));
/// # builder.endpoint(Endpoint::Url("https://hooks.example.com".into())).build()?;
/// # Ok(())
/// # }
/// ```
pub struct Cache<K> {
    store: Store<K>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
        }
    }
}

impl<K> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cache").field(&self.store).finish()
    }
}

/// A read of a cache before its first list was complete. A handler that returns this error with `?` states
/// that it [could not decide](Rejection::undecided).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to read the cache of {kind}: its first list is not complete yet")]
pub struct NotSynced {
    kind: String,
}

impl From<NotSynced> for Rejection {
    fn from(error: NotSynced) -> Self {
        Self::undecided(
            "CacheNotSynced",
            format!("could not decide: {error}; try again"),
        )
    }
}

impl<K> Cache<K> {
    pub(crate) fn new(store: Store<K>) -> Self {
        Self { store }
    }

    /// Checks whether the first list is complete.
    ///
    /// # Errors
    /// The first list is not complete yet.
    pub fn synced(&self) -> Result<(), NotSynced> {
        if self.store.is_ready() {
            return Ok(());
        }
        let kind = self.store.resource().kind.clone();
        Err(NotSynced { kind })
    }

    /// Waits until the first list is complete: for tasks, which start before.
    pub async fn ready(&self) {
        self.store.ready().await;
    }

    /// Returns the underlying store, which offers subscriptions to changes, a look-up by UID, and a place
    /// for the responses to the process's own writes, so that readers see them at once.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }
}

impl<K: Resource> Cache<K> {
    /// Returns the object of this name; `namespace` is `None` for a cluster-scoped kind.
    ///
    /// # Errors
    /// The first list is not complete yet.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Arc<K>>, NotSynced> {
        self.synced()?;
        Ok(self.store.get(namespace, name))
    }

    /// Returns all objects, in no order.
    ///
    /// # Errors
    /// The first list is not complete yet.
    pub fn all(&self) -> Result<Vec<Arc<K>>, NotSynced> {
        self.synced()?;
        Ok(self.store.objects())
    }

    /// Returns the objects for which `wanted` returns `true`, in no order. `wanted` must not read this
    /// cache.
    ///
    /// # Errors
    /// The first list is not complete yet.
    pub fn select(&self, wanted: impl Fn(&K) -> bool) -> Result<Vec<Arc<K>>, NotSynced> {
        self.synced()?;
        Ok(self.store.select(wanted))
    }

    /// Returns the rules that the objects of this cache require, for
    /// [`Hook::rules_from`](crate::Hook::rules_from). While an object does not decode, all earlier rules
    /// stay: the rules of this object are unknown.
    pub fn rules<Found>(&self, of: impl Fn(&K) -> Found + Send + Sync + 'static) -> Rules
    where
        K: Send + Sync + 'static,
        Found: IntoIterator<Item = ResourceRule>,
    {
        let changed = Arc::new(channel::Sender::new(()));
        let tell = Arc::clone(&changed);
        let subscription = self.store.subscribe(move |_| tell.send_modify(|()| {}));
        let (cache, last) = (self.clone(), Mutex::new(Vec::new()));
        let current = move || {
            let objects = cache.all().ok()?;
            let mut rules: Vec<_> = objects.iter().flat_map(|object| of(object)).collect();
            let mut last = last.lock();
            if cache.store.undecodable() > 0 {
                rules.append(&mut last.clone());
                rules.sort();
                rules.dedup();
            }
            last.clone_from(&rules);
            Some(rules)
        };
        let store = self.store.clone();
        let ready = move || {
            let store = store.clone();
            async move { store.ready().await }.boxed()
        };
        let source = Source {
            ready: Arc::new(ready),
            _subscription: Arc::new(subscription),
        };
        Rules::from_fn(current, changed, source)
    }
}

/// The scope of a cache.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub(crate) group: String,
    pub(crate) plural: String,
    /// The watched namespace, if the cache is restricted to one.
    pub(crate) namespace: Option<String>,
}

impl Cached {
    pub(crate) fn new(kind: &Kind, namespace: Option<&str>) -> Self {
        Self {
            group: kind.resource.group.clone(),
            plural: kind.resource.plural.clone(),
            namespace: namespace.map(ToOwned::to_owned),
        }
    }
}
