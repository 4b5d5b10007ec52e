//! Stores: the objects of one kind as a watch has shown them, typed and ready to be read. Guarded
//! watches, which an object that does not decode cannot stop, and the writes of this process feed
//! each store.

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

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::ApiResource;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch as channel;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::keep::Keep;
use crate::kind::Kind;
use cache::Cache;
pub(crate) use cache::path;
pub use cache::{Change, Closed};
pub use health::{Ages, Complaint, Health};
pub use source::{Selection, WatchError};
pub use subscription::{SubscriberId, Subscription};
pub(crate) use watch::{Feed, Report, title};
pub use watch::{Guarded, Retried, StoreEvent, guarded_store, guarded_watch};

/// The objects of one kind, updated by a watch. Clones are cheap and share one content. The watch ends
/// with the last of them.
pub struct Store<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    resource: ApiResource,
    cluster_scoped: bool,
    cache: RwLock<Cache<K>>,
    subscribers: RwLock<Vec<(SubscriberId, Subscriber<K>)>>,
    next_subscriber: AtomicUsize,
    /// The number of watches without a complete first list.
    unlisted: AtomicUsize,
    ready: channel::Sender<bool>,
    /// False for a store of a test, which has no watch.
    watched: bool,
    /// The guard that ends the watches of this store.
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
    /// Returns group, version, kind and plural of the stored objects.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.inner.resource
    }

    /// Checks whether the first list is complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.inner.ready.borrow()
    }

    /// Waits until the first list is complete.
    pub async fn ready(&self) {
        // The sender lives as long as this store.
        let _ = self.inner.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Calls `callback` for every change from now on, except for those that the subscriber itself
    /// causes, until the returned subscription is dropped. The callback runs on the task of the watch
    /// and must not block.
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

    /// Returns the same content without a reference that keeps the watches running.
    pub(crate) fn downgrade(&self) -> WeakStore<K> {
        WeakStore(Arc::downgrade(&self.inner))
    }

    /// Checks whether the kind is cluster-scoped.
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

/// Gives an object the parts of its identity that an API server would have given it.
fn identify(metadata: &mut ObjectMeta) {
    let name = metadata.name.get_or_insert_with(|| "unnamed".to_owned());
    let place = path(metadata.namespace.as_deref(), name);
    metadata
        .uid
        .get_or_insert_with(|| format!("uid of {place}"));
}

/// The reference of a feed to its store.
pub(crate) struct WeakStore<K>(Weak<Inner<K>>);

impl<K> WeakStore<K> {
    /// Returns the store, if a reference to it still exists.
    pub(crate) fn upgrade(&self) -> Option<Store<K>> {
        let inner = self.0.upgrade()?;
        Some(Store { inner })
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Store<K> {
    /// Creates a store without a watch, with these objects: for tests. [`Store::wrote`] and [`Store::gone`] change
    /// it. An object without a name or a UID gets one, as from the API server.
    #[must_use]
    pub fn fixed(objects: impl IntoIterator<Item = K>) -> Self {
        Self::fixed_as(objects, &Keep::default())
    }

    /// Does the same as [`Store::fixed`], with objects in this form.
    #[must_use]
    pub fn fixed_as(objects: impl IntoIterator<Item = K>, keep: &Keep<K>) -> Self {
        let kind = Kind::from_type::<K>();
        let ended = CancellationToken::new();
        let store = Self::new(kind.resource, kind.cluster_scoped, 0, keep, ended);
        for object in objects {
            store.wrote(object, None);
        }
        store
    }
}

impl<K: Resource> Store<K> {
    /// Creates an empty store for `watches` watches, which feed it until `ended`, which is when the
    /// last clone is dropped.
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
                watched: watches > 0,
                _watches: ended.drop_guard(),
            }),
        }
    }

    /// Returns the object of this name. `namespace` is `None` for a cluster-scoped kind.
    #[must_use]
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        self.read().get(&path(namespace, name))
    }

    /// Returns the object with this UID.
    #[must_use]
    pub fn by_uid(&self, uid: &str) -> Option<Arc<K>> {
        let (object, closed) = self.read().by_uid(uid)?;
        if let Some(path) = closed {
            // A caller that reads an object reads it again: a pass does so several times.
            self.write().stays_open(path, &object);
        }
        Some(object)
    }

    /// Returns all objects, in no order.
    #[must_use]
    pub fn objects(&self) -> Vec<Arc<K>> {
        self.read().objects().collect()
    }

    /// Returns the objects for which `wanted` returns true, in no order. `wanted` must not read
    /// this very store.
    #[must_use]
    pub fn select(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.read()
            .objects()
            .filter(|object| wanted(object))
            .collect()
    }

    /// Calls `look` for all objects, in no order; `look` decodes those of which it needs more. It must not read
    /// this very store.
    pub fn for_each(&self, look: impl FnMut(Closed<'_, K>)) {
        self.read().closed().for_each(look);
    }

    /// Returns the objects that have a mark, see [`Keep::marks_of`], and for which `wanted` returns true, in no
    /// order. Decodes only those with the mark; if the store has no marks, all objects count. `wanted` must not
    /// read this very store.
    #[must_use]
    pub fn marked(&self, mark: u64, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.having(mark, true, wanted)
    }

    /// Does the same as [`Store::marked`], for objects without the mark.
    #[must_use]
    pub fn unmarked(&self, mark: u64, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.having(mark, false, wanted)
    }

    /// Checks whether the object with this UID has a mark, without decoding it. Returns `None` if there is no such
    /// object, or the store has no marks.
    #[must_use]
    pub fn is_marked(&self, uid: &str, mark: u64) -> Option<bool> {
        self.read().is_marked(uid, mark)
    }

    fn having(&self, mark: u64, has: bool, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let known = self.read();
        let found = known.marked(mark, has);
        found.filter(|object| wanted(object)).collect()
    }

    /// Returns the number of objects that do not decode at present.
    #[must_use]
    pub fn undecodable(&self) -> usize {
        self.read().undecodable()
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Checks whether the store has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the objects of one group of the index.
    pub fn group(&self, name: &str) -> Vec<Arc<K>> {
        self.read().group(name).collect()
    }

    /// Returns the groups of the index that have members.
    pub fn groups(&self) -> Vec<String> {
        self.read().groups().cloned().collect()
    }

    /// Checks whether the object with this UID is known to have been deleted a short while ago.
    #[must_use]
    pub fn is_gone(&self, uid: &str) -> bool {
        self.read().is_gone(uid)
    }

    /// Checks whether the newest version of the object with this UID does not decode.
    pub fn is_undecodable(&self, uid: &str) -> bool {
        self.read().is_undecodable(uid)
    }

    /// Applies the API server's response to a write by subscriber `by`.
    pub fn wrote(&self, mut object: K, by: Option<SubscriberId>) {
        if !self.inner.watched {
            identify(object.meta_mut());
        }
        let changes = self.write().wrote(object);
        self.publish(&changes, by);
    }

    /// Applies the deletion of the object with this UID by subscriber `by`.
    pub fn gone(&self, uid: &str, by: Option<SubscriberId>) {
        let change = self.write().gone(uid, Instant::now());
        self.publish(change.as_slice(), by);
    }
}
