//! The engine as its user sees it: what to watch, which controllers to run, as whom, until when.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::future::BoxFuture;
use kube::{Client, Resource};
use oz_core::controller::Controller;
use oz_core::labels;
use oz_runtime::{
    Change, Clock, Election, Feeds, Leadership, Readiness, Selection, Store, cluster_scoped,
};
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::events::Events;
use crate::metrics::Metrics;
use crate::observe::{ChildKind, Cx, Observe, Watches};
use crate::ports::{Port, Ports};
use crate::run::{
    Applied, ChildStore, Children, Departed, Lane, Lines, Packed, Runner, Shared, Writer,
};
use crate::sink::{LogSink, Sink};

/// Why an engine stopped other than by being told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The Lease went to another process, or could not be renewed in time. Nothing is written any
    /// more; the process should exit and start again.
    #[error("failed to keep the lease {namespace}/{name}: {reason}")]
    LeaseLost {
        /// Namespace of the Lease.
        namespace: String,
        /// Name of the Lease.
        name: String,
        /// What happened to it.
        reason: String,
    },
    /// An address for probes and metrics could not be listened on.
    #[error("failed to listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        error: std::io::Error,
    },
    /// No thread could be started.
    #[error("failed to start the threads of ordinary passes: {0}")]
    Threads(#[source] std::io::Error),
    /// A task that should run as long as the engine ended.
    #[error("failed to keep {0} running")]
    TaskEnded(&'static str),
}

/// Runs controllers. See the [crate's documentation](crate) for an example.
pub struct Engine {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) ports: Ports,
    pub(crate) election: Election,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) concurrency: usize,
    pub(crate) registry: Registry,
    pub(crate) metrics: Metrics,
    pub(crate) runtime_metrics: oz_runtime::Metrics,
    pub(crate) readiness: Readiness,
    pub(crate) feeds: Feeds,
    pub(crate) controllers: Vec<Start>,
}

/// Starts a controller once everything that it shares with others is known.
pub(crate) type Start = Box<dyn FnOnce(&Parts) -> BoxFuture<'static, ()> + Send>;

/// What all controllers share.
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) ports: Ports,
    pub(crate) concurrency: usize,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(crate) tenure: Leadership,
    pub(crate) lines: Lines,
    /// Where ordinary passes run.
    pub(crate) ordinary: Handle,
    pub(crate) shutdown: CancellationToken,
}

impl Engine {
    /// An engine that writes through `client` and judges time by `clock`.
    pub fn new(client: Client, clock: impl Clock) -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let common = registry.sub_registry_with_prefix(labels::OZ);
        let runtime_metrics = oz_runtime::Metrics::register(common);
        let readiness = Readiness::default();
        let feeds = Feeds::new(
            "oz",
            client.clone(),
            runtime_metrics.clone(),
            readiness.clone(),
        );
        common.register_collector(Box::new(feeds.ages.clone()));
        Self {
            feeds,
            client,
            clock: Arc::new(clock),
            sink: Arc::new(LogSink),
            ports: Ports::default(),
            election: Election::Off,
            addresses: Vec::new(),
            concurrency: 32,
            registry,
            metrics,
            runtime_metrics,
            readiness,
            controllers: Vec::new(),
        }
    }

    /// Restricts the watches of namespaced kinds to these namespaces; none given means all. To be
    /// called before stores and controllers are made.
    pub fn namespaces(&mut self, namespaces: impl IntoIterator<Item = String>) -> &mut Self {
        self.feeds.namespaces = namespaces.into_iter().collect();
        self
    }

    /// Where records go; by default to the log.
    pub fn sink(&mut self, sink: impl Sink) -> &mut Self {
        self.sink = Arc::new(sink);
        self
    }

    /// Carries out the effects that are for the port of this name. An effect for a port that nobody
    /// registered is a failure that names it.
    pub fn port(&mut self, name: impl Into<String>, port: impl Port) -> &mut Self {
        self.ports.register(name.into(), Arc::new(port));
        self
    }

    /// Whether to compete for a Lease; by default not.
    pub fn election(&mut self, election: Election) -> &mut Self {
        self.election = election;
        self
    }

    /// How many passes of one controller may run at once, and how many writes of all controllers
    /// together. As many writes again are reserved for what takes something away; passes that are
    /// due run beside the others. By default 32.
    pub fn concurrency(&mut self, passes: usize) -> &mut Self {
        self.concurrency = passes.max(1);
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` there, without TLS. May be called again for
    /// further addresses.
    pub fn listen(&mut self, address: SocketAddr) -> &mut Self {
        self.addresses.push(address);
        self
    }

    /// The metrics, to which the caller may add its own.
    pub fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// What `/readyz` tells. The caller may add gates of its own.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Watches a kind. The store fills once the engine runs; several controllers may share it.
    pub fn store<K>(&mut self) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.store_with(&(), Selection::default())
    }

    /// As [`Engine::store`], for a kind that is named at run time or for a part of its objects.
    pub fn store_with<K>(&mut self, kind: &K::DynamicType, selection: Selection) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let resource = kube::core::ApiResource::erase::<K>(kind);
        self.feeds
            .store(resource, cluster_scoped::<K>(), selection, None, None)
    }

    /// Adds a controller and its edge.
    pub fn controller<C, O>(&mut self, controller: C, observe: O) -> &mut Self
    where
        C: Controller,
        O: Observe<C>,
    {
        let watches = observe.watches();
        let children = self.child_stores(&watches);
        self.controllers.push(Box::new(move |parts: &Parts| {
            let runner = assemble(parts, controller, observe, watches, children);
            Box::pin(Arc::new(runner).run(parts.shutdown.clone()))
        }));
        self
    }

    fn child_stores<K: Resource>(&mut self, watches: &Watches<K>) -> Vec<Store<Packed>> {
        let selection = Selection::default().labels(&labels::children_of(&watches.mark));
        watches
            .children
            .iter()
            .map(|child| {
                self.feeds.store(
                    child.resource.clone(),
                    child.cluster_scoped,
                    selection.clone(),
                    Some(Packed::owner),
                    Some(Packed::unread),
                )
            })
            .collect()
    }
}

/// Puts a runner together and lets its watches fill its queue.
fn assemble<C, O>(
    parts: &Parts,
    controller: C,
    observe: O,
    watches: Watches<C::Object>,
    stores: Vec<Store<Packed>>,
) -> Runner<C, O>
where
    C: Controller,
    O: Observe<C>,
{
    let shared = Shared::new(parts.concurrency);
    let objects = watches.objects;
    let queue = Arc::clone(&shared);
    let departed = Departed::default();
    let (gone, tenure) = (departed.clone(), parts.tenure.clone());
    let subscriber = objects.subscribe(move |change: &Change<C::Object>| {
        let lane = match change {
            // One that a finalizer keeps is ended as one that is gone.
            Change::Applied(object) if object.meta().deletion_timestamp.is_none() => Lane::Ordinary,
            Change::Applied(_) => Lane::Urgent,
            Change::Deleted(object) => {
                // Whoever leads next begins with a look at what belongs to nothing.
                if tenure.holds() {
                    gone.note(object);
                }
                Lane::Urgent
            }
        };
        queue.push_object(change.object().as_ref(), lane);
    });
    let kinds = children(&shared, &objects, watches.children, stores);
    let related = watches.related.into_iter().map(|relate| {
        let queue = Arc::clone(&shared);
        relate(Arc::new(move |object: &C::Object| {
            queue.push_object(object, Lane::Ordinary);
        }))
    });
    let awaited = related.collect();
    Runner {
        kind: controller.dynamic_type(),
        cx: Cx {
            client: parts.client.clone(),
            clock: Arc::clone(&parts.clock),
        },
        objects,
        subscriber,
        children: Children {
            kinds,
            mark: watches.mark,
        },
        departed,
        awaited,
        complete: AtomicBool::new(false),
        writer: Writer {
            client: parts.client.clone(),
            lines: parts.lines.clone(),
            tenure: parts.tenure.clone(),
            metrics: parts.metrics.clone(),
            controller: controller.name(),
            manager: format!("oz/{}", controller.name()),
        },
        sink: Arc::clone(&parts.sink),
        ports: parts.ports.clone(),
        events: parts.events.clone(),
        metrics: parts.metrics.clone(),
        shared,
        ordinary: parts.ordinary.clone(),
        controller,
        observe,
    }
}

/// Lets the watches of children fill the queue.
fn children<K>(
    shared: &Arc<Shared>,
    objects: &Store<K>,
    kinds: Vec<ChildKind>,
    stores: Vec<Store<Packed>>,
) -> Vec<ChildStore>
where
    K: Resource + Send + Sync + 'static,
{
    let kinds = kinds.into_iter().zip(stores);
    let kinds = kinds.map(|(kind, store)| {
        let applied = Applied::default();
        let (queue, owners, forget) = (Arc::clone(shared), objects.clone(), applied.clone());
        let subscriber = store.subscribe(move |change: &Change<Packed>| {
            if let Change::Deleted(child) = change {
                forget.forget(child.meta().uid.as_deref().unwrap_or_default());
            }
            if let Some(owner) = change.object().owner() {
                let orphaned = owners.by_uid(owner).is_none();
                let lane = if orphaned {
                    Lane::Urgent
                } else {
                    Lane::Ordinary
                };
                queue.push(owner, lane);
            }
        });
        ChildStore {
            kind,
            store,
            subscriber,
            applied,
        }
    });
    kinds.collect()
}
