//! A process: its addresses, its election, its parts and tasks, and the order in which they stop.

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

/// An error that ends a process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Another process took the Lease, or the Lease could not be renewed in time. The process
    /// writes nothing more; it should exit and start again.
    #[error("failed to keep the lease {namespace}/{name}: {reason}")]
    LeaseLost {
        /// Namespace of the Lease.
        namespace: String,
        /// Name of the Lease.
        name: String,
        /// The reason for the loss.
        reason: String,
    },
    /// The process failed to listen on an address for probes and metrics.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        #[source]
        error: std::io::Error,
    },
    /// A service failed.
    #[error("failed to continue task {name}")]
    Task {
        /// The name of the service.
        name: Arc<str>,
        /// The error of the service.
        #[source]
        error: TaskError,
    },
    /// A part ended that the process requires.
    #[error("failed to keep {0} running")]
    Ended(Arc<str>),
}

/// An address to bind, or a socket that is bound already.
#[derive(Debug)]
pub enum Listen {
    /// An address to bind.
    Address(SocketAddr),
    /// A bound socket.
    Bound(std::net::TcpListener),
}

impl Listen {
    /// Binds the address, and returns the socket.
    ///
    /// # Errors
    /// When the address is in use, or is not an address of this machine.
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

/// A part of the process, as a future that the process requires.
pub(crate) struct Part {
    pub(crate) name: Arc<str>,
    pub(crate) run: BoxFuture<'static, ()>,
}

/// A process under construction.
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
    /// A lock allows the assembled runtime to be shared before it runs.
    parts: Mutex<Vec<Part>>,
    pub(crate) tasks: Vec<Named>,
}

/// Returns a product's name with the characters that are allowed in the name of a metric.
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
    /// Creates a process of `product`, which is the prefix of its metrics and the source of its
    /// events. The process uses `client` for the API server and `clock` for the time.
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

    /// Replaces the clock.
    pub fn set_clock(&mut self, clock: impl Clock) -> &mut Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets whether the process competes for a Lease; by default it does not, and then this process
    /// leads. Call this once: the metric `leader` shows the state.
    pub fn election(&mut self, election: Election) -> &mut Self {
        let prefix = metrics_prefix(&self.product);
        let mut registry = self.registry();
        self.metrics
            .register_leader(registry.sub_registry_with_prefix(prefix));
        drop(registry);
        self.election = election;
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` on this address, without TLS. Call this again
    /// for further addresses.
    pub fn listen(&mut self, listen: Listen) -> &mut Self {
        self.listen.push(listen);
        self
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the leadership, which shows at any moment whether this process leads.
    #[must_use]
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Returns the sender of events.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Returns the metrics, to which the caller may add its own.
    pub fn registry(&self) -> impl DerefMut<Target = Registry> + '_ {
        self.registry.lock()
    }

    /// Returns the state that `/readyz` shows. The caller may add its own gates.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Returns the watches.
    #[must_use]
    pub fn feeds(&self) -> &Feeds {
        &self.feeds
    }

    /// Adds a task; `name` is for logs.
    pub fn task(&mut self, name: &str, who: Who, task: impl Task) -> &mut Self {
        self.tasks.push(Named::task(name, who, task));
        self
    }

    /// Adds a task that receives a token for its stop, and that ends the process if it fails.
    pub fn service<F, Work>(&mut self, name: &str, who: Who, run: F) -> &mut Self
    where
        F: Fn(CancellationToken) -> Work + Send + Sync + 'static,
        Work: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        self.tasks.push(Named::service(name, who, run));
        self
    }

    /// Adds a part that the process requires: it runs on every replica until the token that is passed
    /// to `run` is cancelled, and the process then waits for its end.
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

    /// Returns `/metrics`, `/healthz` and `/readyz` as an HTTP service.
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

    /// Runs until `shutdown` is cancelled: then no new work begins, the work in progress finishes, and
    /// the process releases the Lease.
    ///
    /// # Errors
    /// When the Lease is lost, the process fails to listen on an address, or a part or a service ends.
    /// The process should exit.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), RuntimeError> {
        let mut running = self.start().await?;
        // The order matters: parts end on a shutdown too, and then that is no failure.
        let failed = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            failed = running.failed() => Some(failed),
        };
        running.stop().await;
        failed.map_or(Ok(()), Err)
    }
}
