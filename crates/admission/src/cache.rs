//! A cache of one kind: what a watch has shown of it, shared by whatever runs in the process.

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

/// Objects of one kind, as a watch shows them. Hooks, watchers and tasks read it without asking the API
/// server; clones share one content, and two caches of the same objects share one watch.
///
/// It is declared with [`ManagerBuilder::cache`](crate::ManagerBuilder::cache) before the manager is built,
/// and fills while the manager runs, which is not ready before every cache is complete. Reading it before
/// that is an error, never an empty answer.
///
/// What it says is a moment old: usually milliseconds, and as long as the API server cannot be reached as
/// long as that lasts (`<fingerprint>_watch_age_seconds` tells). A user who has just been told that something
/// was stored may ask a hook that does not see it yet. So decide by it what may be decided a moment late,
/// and ask the API server where it may not. An object that does not decode is not in it.
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

/// A cache was read before its first list was complete. A handler that passes it on with `?` says that it
/// [could not decide](Rejection::undecided).
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

    /// Whether the first list is complete.
    ///
    /// # Errors
    /// As long as it is not.
    pub fn synced(&self) -> Result<(), NotSynced> {
        if self.store.is_ready() {
            return Ok(());
        }
        let kind = self.store.resource().kind.clone();
        Err(NotSynced { kind })
    }

    /// Waits until the first list is complete: for tasks, which begin before.
    pub async fn ready(&self) {
        self.store.ready().await;
    }

    /// What is behind it: changes to subscribe to, a look by UID, and a place for the answers to one's own
    /// writes, so that they are seen at once.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }
}

impl<K: Resource> Cache<K> {
    /// The object of this name; `namespace` is `None` for a kind that is in none.
    ///
    /// # Errors
    /// As long as the first list is not complete.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Arc<K>>, NotSynced> {
        self.synced()?;
        Ok(self.store.get(namespace, name))
    }

    /// All objects, in no order.
    ///
    /// # Errors
    /// As long as the first list is not complete.
    pub fn all(&self) -> Result<Vec<Arc<K>>, NotSynced> {
        self.synced()?;
        Ok(self.store.objects())
    }

    /// The objects for which `wanted` holds, in no order. It must not read this very cache.
    ///
    /// # Errors
    /// As long as the first list is not complete.
    pub fn select(&self, wanted: impl Fn(&K) -> bool) -> Result<Vec<Arc<K>>, NotSynced> {
        self.synced()?;
        Ok(self.store.select(wanted))
    }

    /// The rules that the objects of this cache ask for, for [`Hook::rules_from`](crate::Hook::rules_from).
    /// As long as an object does not decode, none of those before is taken away: nobody knows which are its.
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
        Rules::of(current, changed, source)
    }
}

/// What a cache watches.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub(crate) group: String,
    pub(crate) plural: String,
    /// The one namespace in which it is, if it is one.
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
