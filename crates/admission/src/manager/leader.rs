//! Tasks on one replica only: a Lease decides which.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use kube_lease_manager::LeaseManagerBuilder;
use tokio_util::sync::CancellationToken;

use crate::{
    server::reviewer::Reviewer,
    task::{NamedTask, TaskError},
};

/// A Lease lasts this long without being renewed; a crashed leader is replaced after it.
const LEASE: u64 = 15;
/// It is renewed when this much of it is left.
const RENEW: u64 = 5;
/// How long a task may take to notice that it has to stop, before it is dropped.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why tasks do not run any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Lease cannot be had or kept.
    #[error("failed to take part in leader election: {0}")]
    Lease(Box<kube_lease_manager::LeaseManagerError>),
    /// The part that renews it is gone.
    #[error("failed to take part in leader election: renewal ended")]
    Ended,
    /// A task gave up.
    #[error("failed to go on with task {name}: {source}")]
    Task {
        /// Which.
        name: Arc<str>,
        /// Why.
        source: TaskError,
    },
}

pub(super) struct Leader {
    pub(super) client: kube::Client,
    pub(super) namespace: String,
    pub(super) lease: String,
    pub(super) identity: Option<String>,
    pub(super) tasks: Vec<NamedTask>,
    pub(super) reviewer: Arc<Reviewer>,
}

impl Leader {
    /// Runs the tasks whenever this replica leads, until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let mut builder = LeaseManagerBuilder::new(self.client.clone(), &self.lease)
            .with_namespace(&self.namespace)
            .with_duration(LEASE)
            .with_grace(RENEW)
            .with_field_manager(&self.lease);
        if let Some(identity) = &self.identity {
            builder = builder.with_identity(identity);
        }
        let manager = builder
            .build()
            .await
            .map_err(|error| Error::Lease(Box::new(error)))?;
        let (mut leading, renewal) = manager.watch().await;
        let outcome = loop {
            tokio::select! {
                changed = leading.changed() => if changed.is_err() { break Err(Error::Ended) },
                () = stop.cancelled() => break Ok(()),
            }
            if !*leading.borrow_and_update() {
                continue;
            }
            tracing::info!(lease = self.lease, "leading");
            let term = stop.child_token();
            let lost = async {
                // An error means that the renewal is gone, and leadership with it.
                let _ = leading.wait_for(|leads| !leads).await;
            };
            if let Err(error) = self.lead(term, lost).await {
                break Err(error);
            }
        };
        // Gives the Lease back, so that another replica need not wait for its end.
        drop(leading);
        let _ = tokio::time::timeout(PATIENCE, renewal).await;
        outcome
    }

    /// One term of office.
    async fn lead(
        &self,
        term: CancellationToken,
        lost: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let mut running: FuturesUnordered<_> = self
            .tasks
            .iter()
            .map(|task| self.task(task, term.clone()))
            .collect();
        let ended = async {
            tokio::select! {
                () = lost => {}
                () = term.cancelled() => {}
            }
        };
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => break,
                // A task that has done its work is not begun again within the term.
                Some(outcome) = running.next() => outcome?,
            }
        }
        tracing::info!(lease = self.lease, "not leading any more");
        term.cancel();
        let rest = async {
            while let Some(outcome) = running.next().await {
                outcome?;
            }
            Ok(())
        };
        // What does not stop is dropped: another replica leads by then.
        tokio::time::timeout(PATIENCE, rest).await.unwrap_or(Ok(()))
    }

    async fn task(&self, task: &NamedTask, term: CancellationToken) -> Result<(), Error> {
        let outcome = (task.run)(self.reviewer.cx(), term).await;
        outcome.map_err(|source| Error::Task {
            name: task.name.clone(),
            source,
        })
    }
}
