//! Stores: what a watch has shown of one kind, typed and ready to be read. Each is fed by guarded
//! watches, in which one object that does not decode stops nothing, and by our own writes.

mod cache;
mod compact;
mod health;
mod source;
mod subscription;
mod watch;

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use kube::Resource;
use kube::core::ApiResource;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch as channel;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::keep::Keep;
use crate::kind::Kind;
use cache::Cache;
use cache::path;
pub use cache::{Change, Closed};
pub use health::{Ages, Health};
pub use source::{Selection, WatchError};
pub use subscription::{SubscriberId, Subscription};
pub(crate) use watch::{Feed, Report, title};
pub use watch::{Guarded, Retried, StoreEvent, guarded_store, guarded_watch};

/// Objects of one kind, kept up to date by a watch. Cheap to clone; clones share one content. The watch
/// ends with the last of them.
pub struct Store<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    resource: ApiResource,
    cluster_scoped: bool,
    cache: RwLock<Cache<K>>,
    subscribers: RwLock<Vec<(SubscriberId, Subscriber<K>)>>,
    next_subscriber: AtomicUsize,
    /// Watches whose first list is not complete yet.
    unlisted: AtomicUsize,
    ready: channel::Sender<bool>,
    /// Ends the watches that feed this.
    _watches: DropGuard,
}

type Subscriber<K> = Arc<dyn Fn(&Change<K>) + Send + Sync>;

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<K> Debug for Store<K> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Store")
            .field("kind", &self.inner.resource.kind)
            .finish_non_exhaustive()
    }
}

impl<K> Store<K> {
    /// Group, version, kind and plural of what is stored.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.inner.resource
    }

    /// Whether the first list is complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.inner.ready.borrow()
    }

    /// Waits until the first list is complete.
    pub async fn ready(&self) {
        // The sender lives as long as this store.
        let _ = self.inner.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Calls back at every change from now on, but for those that the subscriber itself causes, until
    /// the answer is dropped. The callback runs on the task of the watch and must not block.
    #[must_use = "the callback goes with it"]
    pub fn subscribe(&self, callback: impl Fn(&Change<K>) + Send + Sync + 'static) -> Subscription
    where
        K: Send + Sync + 'static,
    {
        let id = self.inner.next_subscriber.fetch_add(1, Ordering::Relaxed);
        self.inner
            .subscribers
            .write()
            .push((id, Arc::new(callback)));
        let this = Arc::downgrade(&self.inner);
        Subscription::new(id, this)
    }

    /// The same content, without keeping its watches.
    pub(crate) fn downgrade(&self) -> WeakStore<K> {
        WeakStore(Arc::downgrade(&self.inner))
    }

    /// Whether the kind lives outside namespaces.
    #[must_use]
    pub fn is_cluster_scoped(&self) -> bool {
        self.inner.cluster_scoped
    }

    fn read(&self) -> RwLockReadGuard<'_, Cache<K>> {
        self.inner.cache.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Cache<K>> {
        self.inner.cache.write()
    }

    fn publish(&self, changes: &[Change<K>], except: Option<SubscriberId>) {
        if changes.is_empty() {
            return;
        }
        let subscribers = self.inner.subscribers.read().clone();
        for change in changes {
            for (id, subscriber) in &subscribers {
                if Some(*id) != except {
                    subscriber(change);
                }
            }
        }
    }

    fn listed(&self) {
        let before =
            self.inner
                .unlisted
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
                    Some(left.saturating_sub(1))
                });
        if before.is_ok_and(|left| left <= 1) {
            self.inner.ready.send_replace(true);
        }
    }
}

/// What feeds a store has of it.
pub(crate) struct WeakStore<K>(Weak<Inner<K>>);

impl<K> WeakStore<K> {
    /// The store, if anybody still has it.
    pub(crate) fn upgrade(&self) -> Option<Store<K>> {
        let inner = self.0.upgrade()?;
        Some(Store { inner })
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Store<K> {
    /// A store that no watch feeds, with these objects: for tests. [`Store::wrote`] and [`Store::gone`] change it.
    #[must_use]
    pub fn fixed(objects: impl IntoIterator<Item = K>) -> Self {
        Self::fixed_as(objects, &Keep::default())
    }

    /// As [`Store::fixed`], with objects that are kept like this.
    #[must_use]
    pub fn fixed_as(objects: impl IntoIterator<Item = K>, keep: &Keep<K>) -> Self {
        let kind = Kind::of::<K>();
        let ended = CancellationToken::new();
        let store = Self::new(kind.resource, kind.cluster_scoped, 0, keep, ended);
        for object in objects {
            store.wrote(object, None);
        }
        store
    }
}

impl<K: Resource> Store<K> {
    /// An empty store that `watches` watches are going to feed until `ended`, which is when the last
    /// clone is dropped.
    pub(crate) fn new(
        resource: ApiResource,
        cluster_scoped: bool,
        watches: usize,
        keep: &Keep<K>,
        ended: CancellationToken,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                resource,
                cluster_scoped,
                cache: RwLock::new(Cache::new(keep)),
                subscribers: RwLock::default(),
                next_subscriber: AtomicUsize::new(0),
                unlisted: AtomicUsize::new(watches),
                ready: channel::Sender::new(watches == 0),
                _watches: ended.drop_guard(),
            }),
        }
    }

    /// The object of this name. `namespace` is `None` for a cluster-scoped kind.
    #[must_use]
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        self.read().get(&path(namespace, name))
    }

    /// The object with this UID.
    #[must_use]
    pub fn by_uid(&self, uid: &str) -> Option<Arc<K>> {
        let (object, closed) = self.read().by_uid(uid)?;
        if let Some(path) = closed {
            // Who asks for one asks again: a pass does so some times.
            self.write().stays_open(path, &object);
        }
        Some(object)
    }

    /// All objects, in no order.
    #[must_use]
    pub fn objects(&self) -> Vec<Arc<K>> {
        self.read().objects().collect()
    }

    /// The objects for which `wanted` holds, in no order. It must not read this very store.
    #[must_use]
    pub fn select(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.read()
            .objects()
            .filter(|object| wanted(object))
            .collect()
    }

    /// Looks at all objects, in no order; `look` opens those of which it must know more. It must not read this very
    /// store.
    pub fn for_each(&self, look: impl FnMut(Closed<'_, K>)) {
        self.read().closed().for_each(look);
    }

    /// The objects that have a mark, see [`Keep::marks_of`], and for which `wanted` holds, in no order. Only those
    /// that have it are opened; where no marks are kept, all may have it. It must not read this very store.
    #[must_use]
    pub fn marked(&self, mark: u64, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.having(mark, true, wanted)
    }

    /// As [`Store::marked`], for those that do not have the mark.
    #[must_use]
    pub fn unmarked(&self, mark: u64, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.having(mark, false, wanted)
    }

    /// Whether the object with this UID has a mark, without opening it. `None` if there is no such object, or no marks
    /// are kept.
    #[must_use]
    pub fn is_marked(&self, uid: &str, mark: u64) -> Option<bool> {
        self.read().is_marked(uid, mark)
    }

    fn having(&self, mark: u64, has: bool, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let known = self.read();
        let found = known.marked(mark, has);
        found.filter(|object| wanted(object)).collect()
    }

    /// How many objects do not decode at present.
    #[must_use]
    pub fn undecodable(&self) -> usize {
        self.read().undecodable()
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects of one group of the index.
    pub fn group(&self, name: &str) -> Vec<Arc<K>> {
        self.read().group(name).collect()
    }

    /// The groups of the index that have members.
    pub fn groups(&self) -> Vec<String> {
        self.read().groups().cloned().collect()
    }

    /// Whether the object with this UID is known to have been deleted a short while ago.
    #[must_use]
    pub fn is_gone(&self, uid: &str) -> bool {
        self.read().is_gone(uid)
    }

    /// Whether the newest version of the object with this UID does not decode.
    pub fn is_undecodable(&self, uid: &str) -> bool {
        self.read().is_undecodable(uid)
    }

    /// Takes in the API server's answer to a write by subscriber `by`.
    pub fn wrote(&self, object: K, by: Option<SubscriberId>) {
        let changes = self.write().wrote(object);
        self.publish(&changes, by);
    }

    /// Takes in that the object with this UID is gone after a deletion by subscriber `by`.
    pub fn gone(&self, uid: &str, by: Option<SubscriberId>) {
        let change = self.write().gone(uid, Instant::now());
        self.publish(change.as_slice(), by);
    }
}
