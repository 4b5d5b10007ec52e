//! A process at work: who runs what, and the order in which it stops.

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

/// How long events that still wait may take to be published once everything else has stopped.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long whoever takes over leaves its tasks alone: what became due meanwhile comes first.
const TAKEOVER_PAUSE: Duration = Duration::from_secs(5);

impl Runtime {
    /// Starts everything.
    ///
    /// # Errors
    /// When an address cannot be listened on.
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
        // In a task of its own, so that a panic is its end and not ours.
        let ended = AbortOnDropHandle::new(tokio::spawn(self.run)).await;
        if ended.is_ok() && stop.is_cancelled() {
            Ok(())
        } else {
            Err(RuntimeError::Ended(self.name))
        }
    }
}

/// Runs what the leader does whenever this process leads, until `stop`.
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
            Some(lost) => tracing::warn!(reason = lost, "not leading any more"),
            None => return Ok(()),
        }
    }
}

/// One term of leadership, with tasks after a pause: it ends when it is cancelled, or with `lost`, which
/// says why.
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
            // What has done its work is not begun again within the term.
            Some(done) = running.join_next() => done.unwrap_or(Ok(()))?,
        }
    };
    term.cancel();
    while let Some(done) = running.join_next().await {
        done.unwrap_or(Ok(()))?;
    }
    Ok(outcome)
}

/// A process at work. Dropped, everything ends at once.
#[derive(Debug)]
pub struct Running {
    stop: CancellationToken,
    /// For what the leader does; a child of the other.
    leading: CancellationToken,
    parts: JoinSet<Result<(), RuntimeError>>,
    /// They go on until everything else has stopped.
    watches: AbortOnDropHandle<()>,
    lead: Option<AbortOnDropHandle<Result<(), RuntimeError>>>,
    elector: Option<Arc<Elector>>,
    /// Kept until everything has stopped, so that watches can leave some.
    events: Option<Events>,
    publisher: AbortOnDropHandle<()>,
    /// Probes are answered to the end.
    _probes: JoinSet<()>,
}

impl Running {
    /// Waits until something ends that the process cannot go on without, and says what.
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
                        // It is nobody's to give back.
                        self.elector = None;
                    }
                    return error;
                }
                Err(error) => return RuntimeError::Ended(error.to_string().into()),
            }
        }
    }

    /// Stops what the leader does and gives the Lease back, while everything else goes on.
    pub async fn step_down(&mut self) {
        self.leading.cancel();
        if let Some(lead) = self.lead.take() {
            let _ = lead.await;
        }
        if let Some(elector) = self.elector.take() {
            elector.release().await;
        }
    }

    /// Tells everything to stop, waits for it, and gives the Lease back; probes are still answered.
    pub async fn stop(&mut self) {
        self.stop.cancel();
        while self.parts.join_next().await.is_some() {}
        self.step_down().await;
        self.watches.abort();
        self.events = None;
        let _ = timeout(LAST_EVENTS_TIMEOUT, &mut self.publisher).await;
    }
}

/// The end of a task, if there is one.
async fn finished<T>(task: &mut Option<AbortOnDropHandle<T>>) -> Result<T, tokio::task::JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
