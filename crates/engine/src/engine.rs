//! The engine as its user sees it: what to watch, which controllers to run, as whom, until when.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::runtime::watcher;
use kube::{Client, Resource};
use oz_core::controller::Controller;
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::observe::Observe;
use crate::sink::{LogSink, Sink};
use crate::store::Store;

/// Whether this process competes for a Lease before it writes.
#[derive(Clone, Debug)]
pub enum Leadership {
    /// It writes at once: the only replica, by arrangement.
    Off,
    /// It writes while it holds the Lease.
    Lease {
        /// Namespace of the Lease.
        namespace: String,
        /// Name of the Lease.
        name: String,
        /// Who this is: the pod's name, so that a restarted process takes its own Lease back.
        identity: String,
    },
}

impl Leadership {
    /// Name of the Lease unless another one is given.
    pub const LEASE: &'static str = "9b20101a.wizardofoz.co";

    /// Competes for the Lease of the usual name.
    pub fn lease(namespace: impl Into<String>, identity: impl Into<String>) -> Self {
        Self::Lease {
            namespace: namespace.into(),
            name: Self::LEASE.to_owned(),
            identity: identity.into(),
        }
    }
}

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
    /// A task that should run as long as the engine ended.
    #[error("failed to keep {0} running")]
    TaskEnded(&'static str),
}

/// Runs controllers. See the [crate's documentation](crate) for an example.
pub struct Engine {
    client: Client,
    clock: Arc<dyn Clock>,
    sink: Arc<dyn Sink>,
    leadership: Leadership,
    namespaces: Vec<String>,
    addresses: Vec<SocketAddr>,
    concurrency: usize,
    registry: Registry,
    tasks: Vec<BoxFuture<'static, ()>>,
}

impl Engine {
    /// An engine that writes through `client` and judges time by `clock`.
    pub fn new(client: Client, clock: impl Clock) -> Self {
        Self {
            client,
            clock: Arc::new(clock),
            sink: Arc::new(LogSink),
            leadership: Leadership::Off,
            namespaces: Vec::new(),
            addresses: Vec::new(),
            concurrency: 32,
            registry: Registry::default(),
            tasks: Vec::new(),
        }
    }

    /// Restricts all watches of namespaced kinds made after this call to these namespaces; none
    /// given means all.
    pub fn namespaces(&mut self, namespaces: impl IntoIterator<Item = String>) -> &mut Self {
        self.namespaces = namespaces.into_iter().collect();
        self
    }

    /// Where records go; by default to the log.
    pub fn sink(&mut self, sink: impl Sink) -> &mut Self {
        self.sink = Arc::new(sink);
        self
    }

    /// Whether to compete for a Lease; by default not.
    pub fn leadership(&mut self, leadership: Leadership) -> &mut Self {
        self.leadership = leadership;
        self
    }

    /// How many passes of one controller may run at once; as many again are reserved for what is
    /// due. By default 32.
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

    /// Watches a kind. The store fills once the engine runs; several controllers may share it.
    pub fn store<K>(&mut self) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.store_with(&(), watcher::Config::default())
    }

    /// As [`Engine::store`], for a kind that is named at run time or for a part of its objects.
    pub fn store_with<K>(&mut self, kind: &K::DynamicType, config: watcher::Config) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (store, feed) = crate::store::guarded_store(&self.client, kind, None, config);
        self.tasks.push(Box::pin(feed));
        store
    }

    /// Adds a controller and its edge.
    pub fn controller<C, O>(&mut self, controller: C, observe: O) -> &mut Self
    where
        C: Controller,
        O: Observe<C>,
    {
        let _ = (controller, observe.watches());
        self
    }

    /// Something else that must hold before `/readyz` says yes; see [`Gate`](crate::Gate).
    /// Runs until `shutdown` is cancelled: no new pass begins then, those under way finish, and
    /// the Lease is given back.
    ///
    /// # Errors
    ///
    /// When the Lease is lost or an address cannot be listened on. The process should exit.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), EngineError> {
        shutdown.cancelled().await;
        Ok(())
    }
}
