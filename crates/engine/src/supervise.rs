//! An engine at work: its tasks, and the order in which they stop.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use oz_core::labels;
use oz_runtime::{Clock, Election, Elector, Leadership, Metrics, Probes, events};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::background::Background;
use crate::engine::{Engine, EngineError, Parts};
use crate::events::Events;
use crate::run::Lines;

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
            metrics: self.runtime_metrics.clone(),
            readiness: self.readiness,
            ages: self.feeds.ages.clone(),
            clock: Arc::clone(&self.clock),
        };
        for address in self.addresses {
            let listener = oz_runtime::listen(address)
                .await
                .map_err(|error| EngineError::Listen { address, error })?;
            servers.spawn(probes.clone().serve(listener));
        }
        let (client, clock) = (self.client.clone(), Arc::clone(&self.clock));
        let (tenure, elector) = election(self.election, client, clock, &self.runtime_metrics);
        let instance = elector.as_ref().map(|one| one.identity.clone());
        let (events, publisher) = events(
            self.client.clone(),
            labels::OZ,
            instance,
            self.runtime_metrics.clone(),
        );
        let mut publisher = tokio::spawn(publisher.run());

        let mut feeds = self.feeds.start(&events);

        // A token of its own, so that a lost Lease stops the controllers too.
        let stop = shutdown.child_token();
        let parts = Parts {
            client: self.client,
            clock: self.clock,
            sink: self.sink,
            ports: self.ports,
            concurrency: self.concurrency,
            metrics: self.metrics,
            events: Events(events),
            tenure,
            lines: Lines::new(self.concurrency),
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
    election: Election,
    client: Client,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
) -> (Leadership, Option<Elector>) {
    match election {
        Election::Off => {
            metrics.leads(true);
            (Leadership::always(), None)
        }
        Election::Lease {
            namespace,
            name,
            identity,
            timing,
        } => {
            let leadership = Leadership::none();
            let elector = Elector {
                client,
                namespace,
                name,
                identity,
                timing,
                clock,
                leadership: leadership.clone(),
                metrics: metrics.clone(),
            };
            (leadership, Some(elector))
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
