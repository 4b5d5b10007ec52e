//! A running process: its parts and tasks, and the order in which they stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::lease::Elector;
use crate::runtime::Part;
use crate::tasks::Named;
use crate::{Events, Recorder, Runtime, RuntimeError, Who};

/// The maximum time for the publication of waiting events after everything else has stopped.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for which a new leader delays its tasks: objects that became due in the meantime come
/// first.
const TAKEOVER_PAUSE: Duration = Duration::from_secs(5);

impl Runtime {
    /// Starts all parts, services and tasks.
    ///
    /// # Errors
    /// When the process fails to listen on an address.
    pub async fn start(mut self) -> Result<Running, RuntimeError> {
        let mut probes = JoinSet::new();
        for listen in std::mem::take(&mut self.listen) {
            let listener = listen.bind().await?;
            probes.spawn(oz_listen::plain::serve(listener, self.probes()));
        }
        let stop = self.stop.clone();
        let mut parts = JoinSet::new();
        for part in std::mem::take(self.parts()) {
            parts.spawn(part.run(stop.clone()));
        }
        let mut watching = self.watching;
        let watches = tokio::spawn(async move { watching.run().await });
        let (leaders, everyone): (Vec<_>, Vec<_>) = self
            .tasks
            .into_iter()
            .partition(|task| task.who == Who::Leader);
        for task in everyone {
            parts.spawn(task.run(stop.clone()));
        }
        let elector = self.election.elector(
            self.client.clone(),
            self.clock,
            self.leadership.clone(),
            self.metrics.clone(),
        );
        let instance = elector.as_ref().map(|elector| elector.identity.as_str());
        let recorder = Recorder::new(self.client, &self.product, instance);
        let elector = elector.map(Arc::new);
        if elector.is_none() {
            self.leadership.always();
            self.metrics.leads(true);
        }
        let leading = stop.child_token();
        let lead = lead(elector.clone(), leaders, leading.clone());
        Ok(Running {
            stop,
            leading,
            parts,
            watches: AbortOnDropHandle::new(watches),
            lead: Some(AbortOnDropHandle::new(tokio::spawn(lead))),
            elector,
            events: Some(self.events),
            publisher: AbortOnDropHandle::new(tokio::spawn(self.publisher.run(recorder))),
            _probes: probes,
        })
    }
}

impl Part {
    /// Runs until `stop`; an end before that is an error.
    async fn run(self, stop: CancellationToken) -> Result<(), RuntimeError> {
        // A separate task, so that a panic ends only the part.
        let ended = AbortOnDropHandle::new(tokio::spawn(self.run)).await;
        if ended.is_ok() && stop.is_cancelled() {
            Ok(())
        } else {
            Err(RuntimeError::Ended(self.name))
        }
    }
}

/// Runs the leader's tasks whenever this process leads, until `stop`.
async fn lead(
    elector: Option<Arc<Elector>>,
    tasks: Vec<Named>,
    stop: CancellationToken,
) -> Result<(), RuntimeError> {
    let Some(elector) = elector else {
        return term(
            &tasks,
            Duration::ZERO,
            stop.child_token(),
            std::future::pending(),
        )
        .await
        .map(drop);
    };
    loop {
        let Some(lease) = stop.run_until_cancelled(elector.acquire()).await else {
            return Ok(());
        };
        let kept = elector.keep(lease);
        match term(&tasks, TAKEOVER_PAUSE, stop.child_token(), kept).await? {
            Some(lost) if !elector.again => return Err(elector.lost(lost)),
            Some(lost) => tracing::warn!(reason = lost, "no longer the leader"),
            None => return Ok(()),
        }
    }
}

/// Runs one term of leadership, with tasks after a pause: it ends when it is cancelled, or with `lost`,
/// which returns the reason.
async fn term(
    tasks: &[Named],
    pause: Duration,
    term: CancellationToken,
    lost: impl Future<Output = String>,
) -> Result<Option<String>, RuntimeError> {
    let mut running: JoinSet<_> = tasks
        .iter()
        .map(|task| {
            let (task, term) = (task.clone(), term.clone());
            async move {
                if !pause.is_zero() {
                    let pause = tokio::time::sleep(pause);
                    if term.run_until_cancelled(pause).await.is_none() {
                        return Ok(());
                    }
                }
                task.run(term).await
            }
        })
        .collect();
    let ended = async {
        tokio::select! {
            reason = lost => Some(reason),
            () = term.cancelled() => None,
        }
    };
    tokio::pin!(ended);
    let outcome = loop {
        tokio::select! {
            ended = &mut ended => break ended,
            // A task that has finished is not started again within the term.
            Some(done) = running.join_next() => done.unwrap_or(Ok(()))?,
        }
    };
    term.cancel();
    while let Some(done) = running.join_next().await {
        done.unwrap_or(Ok(()))?;
    }
    Ok(outcome)
}

/// A running process. When this is dropped, everything ends at once.
#[derive(Debug)]
pub struct Running {
    stop: CancellationToken,
    /// The token for the leader's tasks; a child of the other.
    leading: CancellationToken,
    parts: JoinSet<Result<(), RuntimeError>>,
    /// The watches, which run until everything else has stopped.
    watches: AbortOnDropHandle<()>,
    lead: Option<AbortOnDropHandle<Result<(), RuntimeError>>>,
    elector: Option<Arc<Elector>>,
    /// Kept until everything has stopped, so that watches can send events.
    events: Option<Events>,
    publisher: AbortOnDropHandle<()>,
    /// The probes, which are served to the end.
    _probes: JoinSet<()>,
}

impl Running {
    /// Waits until a part, task or service that the process requires ends, and returns the error.
    pub async fn failed(&mut self) -> RuntimeError {
        loop {
            let ended = tokio::select! {
                Some(ended) = self.parts.join_next() => ended,
                _ = &mut self.watches => return RuntimeError::Ended("the watches".into()),
                ended = finished(&mut self.lead) => {
                    self.lead = None;
                    ended
                }
            };
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    if matches!(error, RuntimeError::LeaseLost { .. }) {
                        // The Lease is lost, so this process must not release it.
                        self.elector = None;
                    }
                    return error;
                }
                Err(error) => return RuntimeError::Ended(error.to_string().into()),
            }
        }
    }

    /// Stops the leader's tasks and releases the Lease, while everything else continues.
    pub async fn step_down(&mut self) {
        self.leading.cancel();
        if let Some(lead) = self.lead.take() {
            let _ = lead.await;
        }
        if let Some(elector) = self.elector.take() {
            elector.release().await;
        }
    }

    /// Stops everything, waits for its end, and releases the Lease; probes are still served.
    pub async fn stop(&mut self) {
        self.stop.cancel();
        while self.parts.join_next().await.is_some() {}
        self.step_down().await;
        self.watches.abort();
        self.events = None;
        let _ = timeout(LAST_EVENTS_TIMEOUT, &mut self.publisher).await;
    }
}

/// Waits for the end of a task, if there is one.
async fn finished<T>(task: &mut Option<AbortOnDropHandle<T>>) -> Result<T, tokio::task::JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
