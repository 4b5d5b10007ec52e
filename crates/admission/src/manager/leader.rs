//! Tasks on one replica only: a Lease decides which.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use kube::Api;
use tokio_util::sync::CancellationToken;

use super::lease::Candidate;
use crate::{
    server::reviewer::{Clock, Reviewer},
    task::{NamedTask, TaskError},
};

/// How long a task may take to notice that it has to stop, before it is dropped.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why tasks do not run any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    pub(super) clock: Clock,
    pub(super) tasks: Vec<NamedTask>,
    pub(super) reviewer: Arc<Reviewer>,
}

impl Leader {
    /// Runs the tasks whenever this replica leads, until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let mut candidate = Candidate::new(
            Api::namespaced(self.client.clone(), &self.namespace),
            self.lease.clone(),
            self.identity.clone().unwrap_or_else(random_identity),
            self.clock.clone(),
        );
        loop {
            tokio::select! {
                () = candidate.acquire() => {}
                () = stop.cancelled() => break,
            }
            tracing::info!(lease = self.lease, "leading");
            let outcome = self.lead(stop.child_token(), candidate.hold()).await;
            tracing::info!(lease = self.lease, "not leading any more");
            if outcome.is_err() || stop.is_cancelled() {
                candidate.release().await;
                return outcome;
            }
        }
        Ok(())
    }

    /// One term of office; ends when it is cancelled or the Lease is lost.
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
        term.cancel();
        let rest = async {
            while let Some(outcome) = running.next().await {
                outcome?;
            }
            Ok(())
        };
        // What does not stop is dropped: another replica may lead by then.
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

/// For those who have not said who they are. The standard library's hasher is seeded at
/// random, which is all that is needed here.
fn random_identity() -> String {
    format!(
        "replica-{:016x}",
        RandomState::new().build_hasher().finish()
    )
}
