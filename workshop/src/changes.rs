//! The changes that a watch reports, with their times. Demo and benches use it to measure what a user would
//! see, without polling.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// A change of an object, and the time at which the watch reported it.
#[derive(Clone, Debug)]
pub(crate) struct Change<K> {
    /// Time by the monotonic clock.
    pub(crate) at: Instant,
    /// Time by the wall clock; on the embedded cluster that is the API server's.
    pub(crate) time: Timestamp,
    /// The object as it is now, or was last.
    pub(crate) object: K,
    pub(crate) deleted: bool,
}

/// All changes since [`Watching::start`] returned, in order.
#[derive(Debug)]
pub(crate) struct Watching<K> {
    changes: UnboundedReceiver<Result<Change<K>>>,
    task: JoinHandle<()>,
}

impl<K> Drop for Watching<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<K> Watching<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Starts to watch; returns when the API server has accepted the watch.
    pub(crate) async fn start(api: Api<K>) -> Result<Self> {
        let list = api
            .list_metadata(&ListParams::default().limit(1))
            .await
            .context("failed to start watching")?;
        let version = list.metadata.resource_version.unwrap_or_default();
        let (sender, changes) = unbounded_channel();
        let (taken, took) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            if let Err(error) = follow(&api, version, &sender, taken).await {
                let _ = sender.send(Err(error));
            }
        });
        // The end of the task contains the reason.
        let _ = took.await;
        Ok(Self { changes, task })
    }

    /// Waits for the next change.
    pub(crate) async fn next(&mut self, within: Duration) -> Result<Change<K>> {
        tokio::time::timeout(within, self.changes.recv())
            .await
            .with_context(|| format!("waited {within:?} for a change: it never came"))?
            .unwrap_or_else(|| Err(anyhow!("the watch ended")))
    }

    /// Waits for the first following change that satisfies `wanted`. `what` completes "waited for …".
    pub(crate) async fn until(
        &mut self,
        what: &str,
        within: Duration,
        mut wanted: impl FnMut(&Change<K>) -> bool,
    ) -> Result<Change<K>> {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let seen = self
                .next(left)
                .await
                .with_context(|| format!("waited {within:?} for {what}"))?;
            if wanted(&seen) {
                return Ok(seen);
            }
        }
    }
}

/// Continues a watch, which ends after some minutes: another one starts where it ended.
async fn follow<K>(
    api: &Api<K>,
    mut version: String,
    changes: &UnboundedSender<Result<Change<K>>>,
    taken: tokio::sync::oneshot::Sender<()>,
) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut taken = Some(taken);
    loop {
        let stream = api.watch(&WatchParams::default(), &version).await?;
        let mut stream = std::pin::pin!(stream);
        if let Some(taken) = taken.take() {
            let _ = taken.send(());
        }
        while let Some(event) = stream.try_next().await? {
            let (at, time) = (Instant::now(), Timestamp::now());
            let (object, deleted) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => {
                    return Err(anyhow!("the watch failed: {}", status.message));
                }
            };
            version = object.resource_version().unwrap_or(version);
            let seen = Change {
                at,
                time,
                object,
                deleted,
            };
            if changes.send(Ok(seen)).is_err() {
                return Ok(());
            }
        }
    }
}
