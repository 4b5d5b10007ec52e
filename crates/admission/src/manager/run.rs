//! The run of a manager: its start, the end of its parts, and its shutdown.

use std::{
    future::Future,
    hash::{BuildHasher, Hasher, RandomState},
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use jiff::SignedDuration;
use oz_runtime::{Clock, Election, LeaseTiming, Listen, RuntimeError};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::{
    Gates, Manager,
    upkeep::{Upkeep, publishes},
};
use crate::{
    server::accept::{Server, Stop},
    watch::Environment,
};

/// The timeout for open calls after the server stops accepting calls: the longest timeout that a webhook
/// can have.
const FINISH: Duration = Duration::from_secs(30);

/// The minimum pause after a failed pass of upkeep, regardless of changes during the pause.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// The reason for which a manager ended without a shutdown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// TLS cannot be set up.
    #[error("failed to set up TLS")]
    Tls(#[from] rustls::Error),
    /// An address is in use, a watcher or a part of the library died, or a task failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl Manager {
    /// Runs until `shutdown` is ready, then drains: readiness fails first, the server accepts calls for the
    /// [`drain`](crate::ManagerBuilder::drain) period, and finishes open calls.
    ///
    /// # Errors
    /// An address cannot be bound, or a watcher or task dies.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        self.run_until(shutdown, std::future::pending()).await
    }

    /// Runs like [`run`](Self::run), and drops all open calls once `abort` is ready in addition to
    /// `shutdown`: for programs with their own signal for a second, immediate stop.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_until(
        mut self,
        shutdown: impl Future<Output = ()> + Send,
        abort: impl Future<Output = ()> + Send,
    ) -> Result<(), Error> {
        let stop = Stop::default();
        let mut server = match self.gates.clone() {
            Some(gates) => {
                let server = self.start_server(&stop).await?;
                self.start_upkeep(gates);
                server
            }
            None => AbortOnDropHandle::new(tokio::spawn(stop.gently.clone().cancelled_owned())),
        };
        self.start_watchers();
        self.compete();
        let (gates, drain) = (self.gates.clone(), self.declared.drain);
        let mut running = self.runtime.start().await?;
        if let Some(gates) = &gates {
            gates.serving.open();
        }

        let mut abort = pin!(abort);
        tokio::select! {
            () = shutdown => {}
            failed = running.failed() => return Err(failed.into()),
            _ = &mut server => return Err(RuntimeError::Ended("the webhook server".into()).into()),
        }
        if let Some(gates) = &gates {
            gates.serving.close("serving");
        }
        stop.draining.cancel();
        let calls = async {
            if gates.is_some() {
                tokio::time::sleep(drain).await;
            }
            stop.gently.cancel();
            let _ = tokio::time::timeout(FINISH, &mut server).await;
        };
        let drained = async {
            // The replica releases the Lease at the same time; the stores remain available.
            futures::future::join(calls, running.step_down()).await;
            running.stop().await;
        };
        tokio::select! {
            () = drained => {}
            () = &mut abort => stop.now.cancel(),
        }
        Ok(())
    }

    async fn start_server(&mut self, stop: &Stop) -> Result<AbortOnDropHandle<()>, Error> {
        let default = Listen::Address(SocketAddr::from(([0, 0, 0, 0], 8443)));
        let listener = self.listen.take().unwrap_or(default).bind().await?;
        let server = Server {
            tls: TlsAcceptor::from(Arc::new(
                self.current
                    .server_config(self.client_authority.as_deref())?,
            )),
            current: self.current.clone(),
            router: self.router_at(self.paths.clone()),
            limits: self.declared.limits.clone(),
            metrics: self.metrics.clone(),
            stop: stop.clone(),
            upgrades: false,
        };
        Ok(AbortOnDropHandle::new(tokio::spawn(server.serve(listener))))
    }

    fn start_upkeep(&mut self, gates: Gates) {
        let upkeep = Upkeep::new(self, publishes(self.declared.mode), Some(gates));
        let maintain = maintain(upkeep, self.client().clone(), self.clock().clone());
        self.runtime.part("upkeep", |stop| async move {
            stop.run_until_cancelled(maintain).await;
        });
    }

    fn start_watchers(&mut self) {
        for (watcher, caught_up) in std::mem::take(&mut self.watchers) {
            let reviewer = self.reviewer.clone();
            let environment = Environment {
                cx: Box::new(move || reviewer.cx()),
                client: self.client().clone(),
                ages: self.runtime.feeds().ages().clone(),
                metrics: self.metrics.clone(),
                caught_up,
            };
            let run = watcher.run(environment);
            let name = format!("watcher {}", watcher.name());
            self.runtime.part(&name, |stop| async move {
                stop.run_until_cancelled(run).await;
            });
        }
    }

    /// Competes for a Lease, if there are tasks for the leader.
    fn compete(&mut self) {
        if self.competes {
            let identity = self.declared.identity.clone();
            self.runtime.election(Election::Lease {
                namespace: self.declared.namespace.clone(),
                name: self.declared.fingerprint.to_string(),
                identity: identity.unwrap_or_else(random_identity),
                timing: LeaseTiming::default(),
                // Hooks are served on every replica, regardless of the leader.
                again: true,
            });
        }
    }
}

/// Returns an identity for a replica without a configured one. The standard library's hasher is seeded at
/// random, which is sufficient here.
fn random_identity() -> String {
    format!(
        "replica-{:016x}",
        RandomState::new().build_hasher().finish()
    )
}

/// Runs passes of upkeep without end.
async fn maintain(mut upkeep: Upkeep, client: kube::Client, clock: Arc<dyn Clock>) {
    let touched = Arc::new(Notify::new());
    let mut changes = upkeep.touched(&client);
    let notify = touched.clone();
    let forward = async move {
        while changes.next().await.is_some() {
            // Several changes during one pass cause one further pass.
            notify.notify_one();
        }
        std::future::pending::<()>().await;
    };
    let passes = async {
        let mut failures = 0_u32;
        loop {
            let passed = upkeep.pass().await;
            let rest = if passed.whole {
                failures = 0;
                let rest = passed.wake.duration_since(clock.now());
                tokio::time::sleep(upkeep.pause()).await;
                rest.max(SignedDuration::ZERO).unsigned_abs()
            } else {
                failures += 1;
                tokio::time::sleep(LEAST_PAUSE).await;
                LEAST_PAUSE * (1 << failures.min(5))
            };
            // The pause of one part must not delay the others when an object changes.
            let _ = tokio::time::timeout(rest, touched.notified()).await;
        }
    };
    tokio::select! {
        () = forward => {}
        () = passes => {}
    }
}
