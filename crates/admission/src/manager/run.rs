//! Running a manager: what is started, what its end means, and how it is stopped.

use std::{future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    Listen, Manager,
    leader::{self, Leader},
    upkeep::{Upkeep, publishes},
};
use crate::{
    server::accept::{Server, Stop},
    watch::Environment,
};

/// How long calls under way may take to finish once nothing more is accepted: the longest
/// timeout a webhook can have.
const FINISH: Duration = Duration::from_secs(30);

/// Why a manager ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken, or not ours.
    #[error("failed to listen on {address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("failed to set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A watcher died. Nobody would notice what it does not see any more.
    #[error("failed to go on: watcher {0} died")]
    WatcherDied(Arc<str>),
    /// A task, or the election of who runs it.
    #[error(transparent)]
    Leader(#[from] leader::Error),
    /// A part of the library died, which is a bug in it.
    #[error("failed to go on: {0} died")]
    Died(String),
}

impl Manager {
    /// Runs until `shutdown` is ready, then drains: readiness fails first, calls are still
    /// taken for the [`drain`](crate::ManagerBuilder::drain) period, and those under way are
    /// finished.
    ///
    /// # Errors
    /// If an address cannot be bound, or if a watcher or task dies.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        self.run_until(shutdown, std::future::pending()).await
    }

    /// Like [`run`](Self::run), and drops everything when `abort` is ready as well: the second
    /// signal of an impatient operator. See [`signals`](crate::signals).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_until(
        mut self,
        shutdown: impl Future<Output = ()> + Send,
        abort: impl Future<Output = ()> + Send,
    ) -> Result<(), Error> {
        let stop = Stop::default();
        // Dropping the set ends whatever is left in it, on every way out.
        let mut parts = JoinSet::new();
        let mut server = self.start_server(&stop).await?;
        if let Some(listen) = self.listen_plain.take() {
            let listener = bind(listen).await?;
            let router = self.plain_router();
            parts.spawn(async move {
                oz_listen::plain::serve(listener, router).await;
                Err(Error::Died("the plain server".to_owned()))
            });
        }
        let upkeep = Upkeep::new(
            &self,
            publishes(self.declared.mode),
            Some(self.gates.clone()),
        );
        parts.spawn(maintain(upkeep, self.client.clone(), self.clock.clone()));
        self.start_watchers(&mut parts);
        let leading = CancellationToken::new();
        let mut leader = self.start_tasks(leading.clone());
        self.gates.serving.open();

        let mut abort = pin!(abort);
        tokio::select! {
            () = shutdown => {}
            Some(ended) = parts.join_next() => return flatten(ended),
            ended = &mut leader => return flatten(ended),
            ended = &mut server => return Err(Error::Died(format!("the webhook server ({ended:?})"))),
        }
        self.gates.serving.close();
        stop.draining.cancel();
        leading.cancel();
        let calls = async {
            tokio::time::sleep(self.declared.drain).await;
            stop.gently.cancel();
            let _ = tokio::time::timeout(FINISH, &mut server).await;
        };
        // The leader gives its Lease back meanwhile.
        let drained = futures::future::join(calls, tokio::time::timeout(FINISH, &mut leader));
        tokio::select! {
            _ = drained => {}
            () = &mut abort => stop.now.cancel(),
        }
        Ok(())
    }

    async fn start_server(&mut self, stop: &Stop) -> Result<tokio::task::JoinHandle<()>, Error> {
        let default = Listen::Address(SocketAddr::from(([0, 0, 0, 0], 8443)));
        let listener = bind(self.listen.take().unwrap_or(default)).await?;
        let server = Server {
            tls: TlsAcceptor::from(Arc::new(
                self.current
                    .server_config(self.client_authority.as_deref())?,
            )),
            router: self.router_at(self.paths.clone()),
            limits: self.declared.limits.clone(),
            metrics: self.metrics.clone(),
            stop: stop.clone(),
        };
        Ok(tokio::spawn(server.serve(listener)))
    }

    fn start_watchers(&mut self, parts: &mut JoinSet<Result<(), Error>>) {
        for (watcher, caught_up) in std::mem::take(&mut self.watchers) {
            let reviewer = self.reviewer.clone();
            let environment = Environment {
                cx: Box::new(move || reviewer.cx()),
                client: self.client.clone(),
                metrics: self.metrics.clone(),
                caught_up,
            };
            let name = watcher.name().clone();
            // In a task of its own, so that a panic is its end and not ours.
            let run = tokio::spawn(watcher.run(environment));
            parts.spawn(async move {
                let _ = AbortOnDrop(run).await;
                Err(Error::WatcherDied(name))
            });
        }
    }

    /// Never ends before it is told to, whether there are tasks or not.
    fn start_tasks(&mut self, stop: CancellationToken) -> AbortOnDrop<Result<(), Error>> {
        let leader = Leader {
            client: self.client.clone(),
            namespace: self.declared.namespace.clone(),
            lease: self.declared.fingerprint.to_string(),
            identity: self.declared.identity.clone(),
            clock: self.clock.clone(),
            tasks: std::mem::take(&mut self.tasks),
            reviewer: self.reviewer.clone(),
        };
        AbortOnDrop(tokio::spawn(async move {
            if leader.tasks.is_empty() {
                stop.cancelled().await;
                return Ok(());
            }
            Ok(leader.run(stop).await?)
        }))
    }
}

/// Passes of upkeep, for ever.
async fn maintain(
    mut upkeep: Upkeep,
    client: kube::Client,
    clock: crate::Clock,
) -> Result<(), Error> {
    let touched = Arc::new(Notify::new());
    let mut changes = upkeep.touched(&client);
    let notify = touched.clone();
    let forward = async move {
        while changes.next().await.is_some() {
            // Many changes during one pass are one reason for the next.
            notify.notify_one();
        }
        std::future::pending::<()>().await;
    };
    let passes = async {
        let mut failures = 0_u32;
        loop {
            match upkeep.pass().await {
                Ok(wake) => {
                    failures = 0;
                    let rest = wake.duration_since(clock());
                    let rest = Duration::try_from(rest).unwrap_or_default();
                    tokio::time::sleep(upkeep.pause()).await;
                    let _ = tokio::time::timeout(rest, touched.notified()).await;
                }
                Err(error) => {
                    failures += 1;
                    let rest = Duration::from_millis(100 << failures.min(5));
                    tracing::warn!(%error, retry = ?rest, "upkeep failed");
                    tokio::time::sleep(rest).await;
                }
            }
        }
    };
    tokio::select! {
        () = forward => {}
        () = passes => {}
    }
    Err(Error::Died("upkeep".to_owned()))
}

async fn bind(listen: Listen) -> Result<TcpListener, Error> {
    match listen {
        Listen::Address(address) => {
            TcpListener::bind(address)
                .await
                .map_err(|source| Error::Listen {
                    address: address.to_string(),
                    source,
                })
        }
        Listen::Bound(listener) => listener
            .set_nonblocking(true)
            .and_then(|()| TcpListener::from_std(listener))
            .map_err(|source| Error::Listen {
                address: "the given socket".to_owned(),
                source,
            }),
    }
}

fn flatten(ended: Result<Result<(), Error>, tokio::task::JoinError>) -> Result<(), Error> {
    match ended {
        Ok(outcome) => outcome,
        Err(error) => Err(Error::Died(error.to_string())),
    }
}

/// A spawned task that does not outlive the one who waits for it.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(cx)
    }
}
