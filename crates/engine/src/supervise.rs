//! An engine at work: its tasks, and the order in which they stop.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::background::Background;
use crate::clock::Clock;
use crate::engine::{Engine, EngineError, Leadership, Parts};
use crate::events::events;
use crate::lease::{Elector, Tenure};
use crate::metrics::Metrics;
use crate::probes::{self, Probes};
use crate::run::WriteSlots;

/// How long events that still wait may take to be published once everything else has stopped.
const LAST_EVENTS: Duration = Duration::from_secs(2);

impl Engine {
    /// Runs until `shutdown` is cancelled: no new pass begins then, those under way finish, and
    /// the Lease is given back.
    ///
    /// # Errors
    ///
    /// When the Lease is lost, or an address cannot be listened on. The process should exit.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), EngineError> {
        let background = Background::start().map_err(EngineError::Threads)?;
        let mut servers = JoinSet::new();
        let probes = Probes {
            registry: Arc::new(self.registry),
            metrics: self.metrics.clone(),
            readiness: self.readiness,
            ages: self.feeds.ages.clone(),
            clock: Arc::clone(&self.clock),
        };
        for address in self.addresses {
            let listener = probes::listen(address)
                .await
                .map_err(|error| EngineError::Listen { address, error })?;
            servers.spawn(probes.clone().serve(listener));
        }
        let (client, clock) = (self.client.clone(), Arc::clone(&self.clock));
        let (tenure, elector) = election(self.leadership, client, clock, &self.metrics);
        let instance = elector.as_ref().map(|one| one.identity.clone());
        let (events, publisher) = events(self.client.clone(), instance, self.metrics.clone());
        let mut publisher = tokio::spawn(publisher.run());

        let mut feeds = self.feeds.start(&events);

        // A token of its own, so that a lost Lease stops the controllers too.
        let stop = shutdown.child_token();
        let parts = Parts {
            client: self.client,
            clock: self.clock,
            sink: self.sink,
            sessions: self.sessions,
            concurrency: self.concurrency,
            metrics: self.metrics,
            events,
            tenure,
            write_slots: WriteSlots::new(self.concurrency),
            ordinary: background.handle(),
            shutdown: stop.clone(),
        };
        let starts = self.controllers.into_iter().map(|start| start(&parts));
        let mut controllers: JoinSet<()> = starts.collect();
        // The publisher ends when the controllers have dropped their ends.
        drop(parts);

        // In this order: the controllers end on a shutdown too, and then that is no failure.
        let result = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            result = lead(elector.as_ref(), &stop) => result,
            Some(_) = controllers.join_next() => Err(EngineError::TaskEnded("a controller")),
            Some(_) = feeds.join_next() => Err(EngineError::TaskEnded("a watch")),
        };
        stop.cancel();
        while controllers.join_next().await.is_some() {}
        if let (Some(elector), Ok(())) = (&elector, &result) {
            elector.release().await;
        }
        if timeout(LAST_EVENTS, &mut publisher).await.is_err() {
            publisher.abort();
        }
        result
    }
}

/// Who may write, and who competes for the Lease, if there is one.
fn election(
    leadership: Leadership,
    client: Client,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
) -> (Tenure, Option<Elector>) {
    match leadership {
        Leadership::Off => {
            metrics.leads(true);
            (Tenure::always(), None)
        }
        Leadership::Lease {
            namespace,
            name,
            identity,
            timing,
        } => {
            let tenure = Tenure::none();
            let elector = Elector {
                client,
                namespace,
                name,
                identity,
                timing,
                clock,
                tenure: tenure.clone(),
                metrics: metrics.clone(),
            };
            (tenure, Some(elector))
        }
    }
}

/// Competes for the Lease, if there is one, until `shutdown`.
async fn lead(elector: Option<&Elector>, shutdown: &CancellationToken) -> Result<(), EngineError> {
    let Some(elector) = elector else {
        return std::future::pending().await;
    };
    elector
        .run(shutdown.clone())
        .await
        .map_err(|reason| EngineError::LeaseLost {
            namespace: elector.namespace.clone(),
            name: elector.name.clone(),
            reason,
        })
}
