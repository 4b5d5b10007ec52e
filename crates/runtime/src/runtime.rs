//! One process: what it listens on, who leads, what runs, and the order in which it stops.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::DerefMut;
use std::sync::Arc;

use axum::Router;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::events::Publisher;
use crate::feeds::Watching;
use crate::probes::Probes;
use crate::tasks::Named;
use crate::telemetry::registry::Registry;
use crate::{Clock, Election, Events, Feeds, Leadership, Metrics, Readiness, Task, TaskError, Who};

/// Why a process cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
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
    #[error("failed to listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        #[source]
        error: std::io::Error,
    },
    /// A service gave up.
    #[error("failed to go on with task {name}")]
    Task {
        /// Which.
        name: Arc<str>,
        /// Why.
        #[source]
        error: TaskError,
    },
    /// A part ended that the process cannot go on without.
    #[error("failed to keep {0} running")]
    Ended(Arc<str>),
}

/// Where to listen: an address to bind, or a socket that is bound already.
#[derive(Debug)]
pub enum Listen {
    /// To be bound.
    Address(SocketAddr),
    /// Bound.
    Bound(std::net::TcpListener),
}

impl Listen {
    /// The socket.
    ///
    /// # Errors
    /// When the address is taken, or not this machine's.
    pub async fn bind(self) -> Result<TcpListener, RuntimeError> {
        match self {
            Self::Address(address) => {
                TcpListener::bind(address)
                    .await
                    .map_err(|error| RuntimeError::Listen {
                        address: address.to_string(),
                        error,
                    })
            }
            Self::Bound(listener) => listener
                .set_nonblocking(true)
                .and_then(|()| TcpListener::from_std(listener))
                .map_err(|error| RuntimeError::Listen {
                    address: "the given socket".to_owned(),
                    error,
                }),
        }
    }
}

/// A part that is to run, as a future that the process cannot go on without.
pub(crate) struct Part {
    pub(crate) name: Arc<str>,
    pub(crate) run: BoxFuture<'static, ()>,
}

/// A process that is put together.
pub struct Runtime {
    pub(crate) product: Arc<str>,
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    registry: Arc<Mutex<Registry>>,
    pub(crate) metrics: Metrics,
    readiness: Readiness,
    feeds: Feeds,
    pub(crate) watching: Watching,
    pub(crate) events: Events,
    pub(crate) publisher: Publisher,
    pub(crate) election: Election,
    pub(crate) leadership: Leadership,
    pub(crate) stop: CancellationToken,
    pub(crate) listen: Vec<Listen>,
    /// In a lock, so that what is put together can be shared before it runs.
    parts: Mutex<Vec<Part>>,
    pub(crate) tasks: Vec<Named>,
}

/// A product's name, as far as a metric's may have its characters.
fn metrics_prefix(product: &str) -> String {
    product.replace('-', "_")
}

impl Debug for Runtime {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Runtime")
            .field("product", &self.product)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// A process of `product`, which names its metrics and its events, that talks to the API server by
    /// `client` and judges time by `clock`.
    pub fn new(product: &str, client: Client, clock: impl Clock) -> Self {
        let mut registry = Registry::default();
        let own = registry.sub_registry_with_prefix(metrics_prefix(product));
        let metrics = Metrics::register(own);
        let readiness = Readiness::default();
        let (events, publisher) = crate::events::events(metrics.clone());
        let (feeds, watching) = Feeds::new(
            product,
            client.clone(),
            metrics.clone(),
            readiness.clone(),
            events.downgrade(),
        );
        #[cfg(feature = "metrics")]
        own.register_collector(Box::new(feeds.ages().clone()));
        Self {
            product: product.into(),
            client,
            clock: Arc::new(clock),
            registry: Arc::new(Mutex::new(registry)),
            metrics,
            readiness,
            feeds,
            watching,
            events,
            publisher,
            election: Election::Off,
            leadership: Leadership::none(),
            stop: CancellationToken::new(),
            listen: Vec::new(),
            parts: Mutex::default(),
            tasks: Vec::new(),
        }
    }

    /// Another clock.
    pub fn set_clock(&mut self, clock: impl Clock) -> &mut Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Whether to compete for a Lease; by default not, and then this process leads. To be said once:
    /// the metric `leader` shows it.
    pub fn election(&mut self, election: Election) -> &mut Self {
        let prefix = metrics_prefix(&self.product);
        let mut registry = self.registry();
        self.metrics
            .register_leader(registry.sub_registry_with_prefix(prefix));
        drop(registry);
        self.election = election;
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` there, without TLS. May be called again for
    /// further addresses.
    pub fn listen(&mut self, listen: Listen) -> &mut Self {
        self.listen.push(listen);
        self
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Whether this process leads, at any moment.
    #[must_use]
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Where events are left.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The metrics, to which the caller may add its own.
    pub fn registry(&self) -> impl DerefMut<Target = Registry> + '_ {
        self.registry.lock()
    }

    /// What `/readyz` tells. The caller may add gates of its own.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// What is watched.
    #[must_use]
    pub fn feeds(&self) -> &Feeds {
        &self.feeds
    }

    /// Adds a task; `name` is for logs.
    pub fn task(&mut self, name: &str, who: Who, task: impl Task) -> &mut Self {
        self.tasks.push(Named::task(name, who, task));
        self
    }

    /// Adds a task that is told to stop, and whose error ends the process.
    pub fn service<F, Work>(&mut self, name: &str, who: Who, run: F) -> &mut Self
    where
        F: Fn(CancellationToken) -> Work + Send + Sync + 'static,
        Work: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        self.tasks.push(Named::service(name, who, run));
        self
    }

    /// Adds what the process cannot go on without: it runs on every replica until the token that `run`
    /// is given is cancelled, and is waited for then.
    pub fn part<Work>(&mut self, name: &str, run: impl FnOnce(CancellationToken) -> Work)
    where
        Work: Future<Output = ()> + Send + 'static,
    {
        let run = run(self.stop.clone()).boxed();
        self.parts().push(Part {
            name: name.into(),
            run,
        });
    }

    pub(crate) fn parts(&mut self) -> &mut Vec<Part> {
        self.parts.get_mut()
    }

    /// `/metrics`, `/healthz` and `/readyz` as an HTTP service.
    pub fn probes(&self) -> Router {
        let probes = Probes {
            #[cfg(feature = "metrics")]
            registry: Arc::clone(&self.registry),
            #[cfg(feature = "metrics")]
            metrics: self.metrics.clone(),
            readiness: self.readiness.clone(),
            ages: self.feeds.ages().clone(),
            clock: Arc::clone(&self.clock),
        };
        probes.router()
    }

    /// Runs until `shutdown` is cancelled: no new work begins then, what is under way finishes, and the
    /// Lease is given back.
    ///
    /// # Errors
    /// When the Lease is lost, an address cannot be listened on, or a part or a service ends. The
    /// process should exit.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), RuntimeError> {
        let mut running = self.start().await?;
        // In this order: parts end on a shutdown too, and then that is no failure.
        let failed = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            failed = running.failed() => Some(failed),
        };
        running.stop().await;
        failed.map_or(Ok(()), Err)
    }
}
