//! The watches of one process: the stores that they feed, and their state in probes and metrics.
//! Callers that request the same objects share the store; a watch ends when the last reference to its
//! store is dropped, and its state is removed with it.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::ApiResource;
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::events::WeakEvents;
use crate::keep::Keep;
use crate::kind::Kind;
use crate::metrics::{Metrics, OfKind};
use crate::raw::Undecodable;
use crate::readiness::{Gate, Readiness};
use crate::recorder::{Event, EventType};
use crate::store::{
    Ages, Feed, Report, Retried, Selection, Store, WatchError, WeakStore, guarded_watch, title,
};

/// The maximum time that a list waits for the lists before it.
const LATEST: Duration = Duration::from_secs(5);

/// The source of stores, before the watches run and while they run. Clones are cheap and share the
/// watches.
#[derive(Clone)]
pub struct Feeds(Arc<Inner>);

struct Inner {
    /// The name of the product in messages about objects that it cannot read.
    product: Arc<str>,
    client: Client,
    metrics: Metrics,
    readiness: Readiness,
    ages: Ages,
    events: WeakEvents,
    /// The namespaces to watch; all if empty.
    namespaces: Mutex<Vec<String>>,
    /// The [`WeakStore`]s of the watches.
    stores: Mutex<HashMap<StoreKey, StoreEntry>>,
    begin: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
}

/// The account that watches a kind, if it is not the account of the process: the store has no objects
/// that this account may not see. A failure of such a watch does not affect the process; the process
/// is ready and healthy without it.
#[derive(Clone)]
pub struct Identity {
    name: Arc<str>,
    client: Client,
}

impl Identity {
    /// Creates the identity for the account of this name, with a client that acts as this account.
    /// Two identities of one name share their watches.
    #[must_use]
    pub fn new(name: &str, client: Client) -> Self {
        let name = name.into();
        Self { name, client }
    }

    /// Returns the client that acts as the account.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// The account, the namespace and the order of a watch.
#[derive(Default)]
struct View<'a> {
    identity: Option<&'a Identity>,
    /// The one namespace to watch, regardless of the restriction of other watches.
    namespace: Option<String>,
    /// The list that comes before.
    after: Option<Before>,
}

/// A future that is ready when the list that comes before is ready.
type Before = Shared<BoxFuture<'static, ()>>;

/// The key of a shared store: two stores that differ in kind, selection, namespace, account or stored
/// type are separate.
#[derive(Clone, PartialEq, Eq, Hash)]
struct StoreKey {
    identity: Option<Arc<str>>,
    resource: ApiResource,
    /// The one namespace, if the store has only one, regardless of the restriction of other
    /// watches.
    namespace: Option<String>,
    selection: Selection,
    kept_as: TypeId,
}

struct StoreEntry {
    store: Box<dyn Any + Send>,
    /// Cancelled when the last reference to the store is dropped.
    ended: CancellationToken,
}

/// The running watches, until this is dropped.
pub(crate) struct Watching {
    begin: mpsc::UnboundedReceiver<BoxFuture<'static, ()>>,
    running: JoinSet<()>,
}

impl Feeds {
    /// Creates the feeds without watches; requested watches run with [`Watching::run`].
    pub(crate) fn new(
        product: &str,
        client: Client,
        metrics: Metrics,
        readiness: Readiness,
        events: WeakEvents,
    ) -> (Self, Watching) {
        let (begin, begins) = mpsc::unbounded_channel();
        let inner = Inner {
            product: product.into(),
            client,
            metrics,
            readiness,
            ages: Ages::default(),
            events,
            namespaces: Mutex::default(),
            stores: Mutex::default(),
            begin,
        };
        let watching = Watching {
            begin: begins,
            running: JoinSet::new(),
        };
        (Self(Arc::new(inner)), watching)
    }

    /// Returns the state of the watches.
    #[must_use]
    pub fn ages(&self) -> &Ages {
        &self.0.ages
    }

    /// Restricts the watches of namespaced kinds that are requested after this call to these
    /// namespaces; an empty list means all.
    pub fn restrict(&self, namespaces: impl IntoIterator<Item = String>) {
        *self.0.namespaces.lock() = namespaces.into_iter().collect();
    }

    /// Watches a kind. The store fills while the process runs. Callers that request the same objects
    /// share the store, and the watch ends when all of them have dropped it.
    #[must_use]
    pub fn store<K>(&self) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.store_with(Selection::default())
    }

    /// Does the same as [`Feeds::store`], for a part of the objects.
    #[must_use]
    pub fn store_with<K>(&self, selection: Selection) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.store_of(&Kind::from_type::<K>(), selection, &Keep::default())
    }

    /// Does the same as [`Feeds::store_with`], for a kind that is named at run time, see
    /// [`Kind::discover`], and for objects that are stored in another form.
    #[must_use]
    pub fn store_of<K>(&self, kind: &Kind, selection: Selection, keep: &Keep<K>) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.shared(View::default(), kind, selection, keep)
    }

    /// Does the same as [`Feeds::store_of`], but lists after the list of `first`, or after some seconds
    /// without it: a long list of this store delays none of the objects of `first`.
    #[must_use]
    pub fn store_after<K, F>(
        &self,
        selection: Selection,
        keep: &Keep<K>,
        first: &Store<F>,
    ) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        F: Send + Sync + 'static,
    {
        let first = first.clone();
        let listed = async move {
            let _ = timeout(LATEST, first.ready()).await;
        };
        let view = View {
            after: Some(listed.boxed().shared()),
            ..View::default()
        };
        self.shared(view, &Kind::from_type::<K>(), selection, keep)
    }

    /// Does the same as [`Feeds::store_of`], with another account if one is given.
    #[must_use]
    pub fn store_as<K>(
        &self,
        identity: Option<&Identity>,
        kind: &Kind,
        selection: Selection,
        keep: &Keep<K>,
    ) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let view = View {
            identity,
            ..View::default()
        };
        self.shared(view, kind, selection, keep)
    }

    /// Does the same as [`Feeds::store_of`], for one namespace, regardless of the
    /// [restriction](Self::restrict) of other watches.
    #[must_use]
    pub fn store_in<K>(&self, kind: &Kind, namespace: &str, selection: Selection) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let view = View {
            namespace: Some(namespace.to_owned()),
            ..View::default()
        };
        self.shared(view, kind, selection, &Keep::default())
    }

    fn shared<K>(
        &self,
        view: View<'_>,
        kind: &Kind,
        selection: Selection,
        keep: &Keep<K>,
    ) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let key = StoreKey {
            identity: view.identity.map(|identity| Arc::clone(&identity.name)),
            resource: kind.resource.clone(),
            namespace: view.namespace.clone(),
            selection,
            kept_as: TypeId::of::<K>(),
        };
        let mut stores = self.0.stores.lock();
        stores.retain(|_, known| !known.ended.is_cancelled());
        let known = stores.get(&key);
        let known = known.and_then(|known| known.store.downcast_ref::<WeakStore<K>>()?.upgrade());
        if let Some(store) = known {
            return store;
        }
        let ended = CancellationToken::new();
        let store = self.feed(&view, kind, &key, keep, &ended);
        let weak = Box::new(store.downgrade());
        stores.insert(key, StoreEntry { store: weak, ended });
        store
    }

    fn feed<K>(
        &self,
        view: &View<'_>,
        kind: &Kind,
        key: &StoreKey,
        keep: &Keep<K>,
        ended: &CancellationToken,
    ) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (inner, selection, identity) = (&self.0, &key.selection, view.identity);
        let restricted = inner.namespaces.lock();
        let namespaces: Vec<Option<String>> = if kind.cluster_scoped {
            vec![None]
        } else if key.namespace.is_some() || restricted.is_empty() {
            vec![key.namespace.clone()]
        } else {
            restricted.iter().cloned().map(Some).collect()
        };
        let (resource, cluster_scoped) = (kind.resource.clone(), kind.cluster_scoped);
        let watches = namespaces.len();
        let store = Store::new(resource, cluster_scoped, watches, keep, ended.clone());
        let undecodable = Arc::new(inner.metrics.of_kind(&kind.resource.kind));
        for namespace in namespaces {
            let name = gate_name(&store, selection, namespace.as_deref());
            let report = Arc::new(Reporting {
                product: Arc::clone(&inner.product),
                // Only the caller waits for objects that one account cannot see.
                gate: match identity {
                    None => inner.readiness.gate(name),
                    Some(_) => Gate::new(name),
                },
                resource: store.resource().clone(),
                undecodable: Arc::clone(&undecodable),
                events: inner.events.clone(),
                published: AtomicUsize::new(0),
            });
            let (watch, health) = guarded_watch(
                identity.map_or(&inner.client, Identity::client),
                store.resource(),
                namespace.as_deref(),
                selection.clone(),
            );
            if identity.is_none() {
                inner.ages.add(&health);
            }
            let feed = Feed {
                watch,
                health,
                store: store.downgrade(),
                ended: ended.clone(),
                namespace,
                report,
                stand_in: keep.stand_in,
            };
            // After the end of the watches, no task reads the feeds.
            let after = view.after.clone();
            let _ = inner.begin.send(Box::pin(async move {
                if let Some(before) = after {
                    before.await;
                }
                feed.run().await;
            }));
        }
        store
    }

    /// Adds a watch that the caller reads. The caller opens the gate when the first list is
    /// complete.
    pub fn watch<K>(
        &self,
        gate: &str,
        resource: &ApiResource,
        namespace: Option<&str>,
        selection: Selection,
    ) -> (Retried<K>, Gate)
    where
        K: Resource + DeserializeOwned,
    {
        let inner = &self.0;
        let (watch, health) = guarded_watch(&inner.client, resource, namespace, selection);
        inner.ages.add(&health);
        (watch, inner.readiness.gate(gate))
    }
}

impl Watching {
    /// Runs the watches that were requested and those that are requested later. Ends only if one of
    /// them panics, which is a defect; a caller may drop the future and call this again.
    pub(crate) async fn run(&mut self) {
        loop {
            tokio::select! {
                Some(watch) = self.begin.recv() => {
                    self.running.spawn(watch);
                }
                Some(ended) = self.running.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a watch broke off");
                        return;
                    }
                }
                // No watch runs, and no caller exists that could request one.
                else => std::future::pending().await,
            }
        }
    }
}

fn gate_name<K>(store: &Store<K>, selection: &Selection, namespace: Option<&str>) -> String {
    let title = title(store.resource(), selection, namespace);
    let kind = &store.resource().kind;
    title.replacen(kind.as_str(), &format!("{kind} list"), 1)
}

/// The maximum number of events about unreadable objects per watch.
const EVENTS: usize = 100;

/// The report of a watch, as readiness and metrics.
struct Reporting {
    product: Arc<str>,
    gate: Gate,
    resource: ApiResource,
    undecodable: Arc<OfKind>,
    events: WeakEvents,
    /// The number of published events.
    published: AtomicUsize,
}

impl Drop for Reporting {
    fn drop(&mut self) {
        // A list without readers must not delay readiness.
        self.gate.open();
    }
}

impl Report for Reporting {
    fn listed(&self) {
        self.gate.open();
    }

    fn failed(&self, error: &WatchError, first: bool) {
        if !first {
            // The process was ready and still serves the objects that it has; a failing probe would
            // take it out of service when the API server is what fails.
            return;
        }
        if matches!(error, WatchError::Refused { code: 404, .. }) {
            let (plural, group) = (&self.resource.plural, &self.resource.group);
            self.gate.close(format!("CRD {plural}.{group}"));
        } else {
            self.gate
                .close(format!("{} list ({error})", self.resource.kind));
        }
    }

    fn undecodable(&self, count: usize) {
        self.undecodable.set(count);
    }

    fn became_undecodable(&self, object: &Undecodable) {
        let Some(events) = self.events.upgrade() else {
            return;
        };
        if object.metadata.uid.is_none() || self.published.fetch_add(1, Ordering::Relaxed) >= EVENTS
        {
            return;
        }
        let event = Event {
            type_: EventType::Warning,
            reason: "Unreadable".to_owned(),
            action: "Watch".to_owned(),
            note: Some(format!(
                "{} cannot read this object, and treats it as deleted: {object}",
                self.product
            )),
            secondary: None,
        };
        let metadata = &object.metadata;
        let about = ObjectReference {
            api_version: Some(self.resource.api_version.clone()),
            kind: Some(self.resource.kind.clone()),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            ..ObjectReference::default()
        };
        events.publish(about, event);
    }
}

#[cfg(test)]
mod tests;
