//! The engine as its user sees it: what to watch, which controllers to run, as whom, until when.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

use kube::{Client, Resource};
use oz_core::controller::Controller;
use oz_core::labels;
use oz_runtime::{Clock, Election, Feeds, Leadership, Readiness, Selection, Store, Watching};
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::controllers::{Controllers, Setup, Start, StartError};
use crate::events::Events;
use crate::metrics::Metrics;
use crate::observe::Observe;
use crate::ports::{Port, Ports};
use crate::run::WriteSlots;
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
    /// A controller could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
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
    pub(crate) watching: Watching,
    pub(crate) controllers: Controllers,
    pub(crate) starts: mpsc::UnboundedReceiver<Start>,
    /// The first controller that could not be started.
    pub(crate) failed: Option<StartError>,
}

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
    pub(crate) write_slots: WriteSlots,
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
        let (feeds, watching) = Feeds::new(
            "oz",
            client.clone(),
            runtime_metrics.clone(),
            readiness.clone(),
        );
        common.register_collector(Box::new(feeds.ages().clone()));
        let (controllers, starts) = Controllers::new(feeds.clone());
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
            watching,
            controllers,
            starts,
            failed: None,
        }
    }

    /// Restricts the watches of namespaced kinds to these namespaces; none given means all. To be
    /// called before stores and controllers are made.
    pub fn namespaces(&mut self, namespaces: impl IntoIterator<Item = String>) -> &mut Self {
        self.feeds.restrict(namespaces);
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

    /// What starts controllers of this engine, also while it runs.
    pub fn controllers(&self) -> &Controllers {
        &self.controllers
    }

    /// Watches a kind, see [`Controllers::store`].
    pub fn store<K>(&mut self) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.controllers.store()
    }

    /// As [`Engine::store`], for a part of the objects.
    pub fn store_with<K>(&mut self, selection: Selection) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.controllers.store_with(selection)
    }

    /// Adds a controller and its edge, which runs as long as the engine.
    pub fn controller<C, O>(&mut self, controller: C, observe: O) -> &mut Self
    where
        C: Controller,
        O: Observe<C>,
    {
        let started = self.controllers.start(Setup::new(controller, observe));
        if let Err(error) = started {
            self.failed.get_or_insert(error);
        }
        self
    }
}
