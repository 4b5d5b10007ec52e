//! The watches of one process: what they feed, and what is to be said about them in probes and
//! metrics. Who asks for what is watched already shares the store; a watch ends with the last who has
//! its store, and with it what is said about it.

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

/// How long a list waits at most for those that come before it.
const LATEST: Duration = Duration::from_secs(5);

/// Where stores come from, before the watches run and while they do. Cheap to clone; clones share what
/// is watched.
#[derive(Clone)]
pub struct Feeds(Arc<Inner>);

struct Inner {
    /// Who cannot read an object, in what is said about it.
    product: Arc<str>,
    client: Client,
    metrics: Metrics,
    readiness: Readiness,
    ages: Ages,
    events: WeakEvents,
    /// Namespaces to watch; all if empty.
    namespaces: Mutex<Vec<String>>,
    /// [`WeakStore`]s of what is watched.
    stores: Mutex<HashMap<StoreKey, Known>>,
    begin: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
}

/// As whom a kind is watched, if not as the process: what this account may not see is not shown. What
/// goes wrong with such a watch is its own trouble; the process is ready and healthy without it.
#[derive(Clone)]
pub struct Identity {
    name: Arc<str>,
    client: Client,
}

impl Identity {
    /// The account of this name, by a client that acts as it. Two of one name share their watches.
    #[must_use]
    pub fn new(name: &str, client: Client) -> Self {
        let name = name.into();
        Self { name, client }
    }

    /// The client that acts as it.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// Who looks, where, and when.
#[derive(Default)]
struct View<'a> {
    identity: Option<&'a Identity>,
    /// One namespace alone, whatever the others are restricted to.
    namespace: Option<String>,
    /// What is listed before.
    after: Option<Before>,
}

/// Ready when what is to be listed before is.
type Before = Shared<BoxFuture<'static, ()>>;

/// What two stores cannot share: kind, which of its objects, seen by whom, and as what they are kept.
#[derive(Clone, PartialEq, Eq, Hash)]
struct StoreKey {
    identity: Option<Arc<str>>,
    resource: ApiResource,
    /// If it is of one alone, whatever the others are restricted to.
    namespace: Option<String>,
    selection: Selection,
    kept_as: TypeId,
}

struct Known {
    store: Box<dyn Any + Send>,
    /// When nobody has it any more.
    ended: CancellationToken,
}

/// Watches that run, until this is dropped.
pub(crate) struct Watching {
    begin: mpsc::UnboundedReceiver<BoxFuture<'static, ()>>,
    running: JoinSet<()>,
}

impl Feeds {
    /// None yet; those that are asked for run with [`Watching::run`].
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

    /// How the watches fare.
    #[must_use]
    pub fn ages(&self) -> &Ages {
        &self.0.ages
    }

    /// Restricts the watches of namespaced kinds that are asked for from now on to these namespaces;
    /// none given means all.
    pub fn restrict(&self, namespaces: impl IntoIterator<Item = String>) {
        *self.0.namespaces.lock() = namespaces.into_iter().collect();
    }

    /// Watches a kind. The store fills while the process runs. Who asks for the same again shares it,
    /// and the watch ends when all have dropped it.
    #[must_use]
    pub fn store<K>(&self) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.store_with(Selection::default())
    }

    /// As [`Feeds::store`], for a part of the objects.
    #[must_use]
    pub fn store_with<K>(&self, selection: Selection) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.store_of(&Kind::of::<K>(), selection, &Keep::default())
    }

    /// As [`Feeds::store_with`], for a kind that is named at run time, see [`Kind::discover`], and for
    /// objects that are not kept as they are.
    #[must_use]
    pub fn store_of<K>(&self, kind: &Kind, selection: Selection, keep: &Keep<K>) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.shared(View::default(), kind, selection, keep)
    }

    /// As [`Feeds::store_of`], for what is listed when `first` is, or after some seconds without it: so long a
    /// list of this keeps none of those objects waiting.
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
        self.shared(view, &Kind::of::<K>(), selection, keep)
    }

    /// As [`Feeds::store_of`], seen by another account if one is given.
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

    /// As [`Feeds::store_of`], for one namespace, whatever the others are [restricted](Self::restrict) to.
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
        stores.insert(key, Known { store: weak, ended });
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
                // Nobody else waits for what one account cannot see.
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
            // Once nothing watches any more, nobody is left to read what is fed.
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

    /// Adds a watch of the caller's, which opens the gate when its first list is complete.
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
    /// Runs the watches that were asked for and those that still are. Ends only if one of them breaks
    /// off, which is a defect; waiting for it may be given up and begun anew.
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
                // None runs, and nobody is left who could ask for one.
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

/// How many events about objects that cannot be read one watch causes.
const EVENTS: usize = 100;

/// Turns what a watch reports into readiness and metrics.
struct Reporting {
    product: Arc<str>,
    gate: Gate,
    resource: ApiResource,
    undecodable: Arc<OfKind>,
    events: WeakEvents,
    /// How many events were published.
    published: AtomicUsize,
}

impl Drop for Reporting {
    fn drop(&mut self) {
        // Nobody waits for a list that nobody reads.
        self.gate.open();
    }
}

impl Report for Reporting {
    fn listed(&self) {
        self.gate.open();
    }

    fn failed(&self, error: &WatchError, first: bool) {
        if !first {
            // It was ready and still serves what it knows; a probe would take it out of service
            // when the API server is what fails.
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
                "{} cannot read this object, and treats it as gone: {object}",
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
