//! Stores parts, a few at once, the oldest first, and retries each until it is stored. A part that cannot be stored
//! does not block the others, unless the server does not implement a header that all uploads have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::meters::SpoolMeters;
use super::session::{Sealed, Session};
use super::usage::Usage;
use crate::storage::{Put, Storage, StorageError};

/// The number of parts that are stored at once.
pub(super) const AT_ONCE: usize = 4;
/// The backoff of a part after the first failure; it doubles after each further failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The maximum backoff after a failure.
const LAST_BACKOFF: Duration = Duration::from_secs(60);

/// The parts that wait to be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The number of parts.
    pub(crate) parts: usize,
    /// The total size of the parts in bytes, in the stored form.
    pub(crate) bytes: u64,
    /// The time for which the oldest part has waited.
    pub(crate) oldest: Option<Duration>,
}

/// A part that waits.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) session: Arc<Session>,
    pub(super) sealed: Sealed,
    pub(super) since: Instant,
}

#[derive(Debug)]
struct Entry {
    part: Part,
    failures: u32,
    /// The time of the next attempt; `None` during an attempt.
    due: Option<Instant>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: BTreeMap<u64, Entry>,
    next: u64,
    /// The reasons for which attempts failed since a part was stored: a lasting failure is logged once.
    logged: BTreeSet<&'static str>,
    /// The pause of all parts, if the server does not implement a header.
    pause: Option<Pause>,
}

/// The pause after a server responded that it does not implement a header of an upload. The other parts would have the
/// same response: after each pause, the gate attempts one part.
#[derive(Clone, Copy, Debug)]
struct Pause {
    failures: u32,
    until: Instant,
}

/// The result of the search for a part to store.
enum Next {
    Part(u64, Part),
    At(Instant),
    Nothing,
}

/// The reason for which a part was not stored.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The store has different content under this name. Another attempt has the same result.
    #[error("another object has its name")]
    Different,
    #[error(transparent)]
    Storage(StorageError),
    #[error(transparent)]
    Disk(std::io::Error),
}

impl Failure {
    /// Returns the reason as one word, for metrics.
    fn reason(&self) -> &'static str {
        match self {
            Self::Different => "Different",
            Self::Storage(error) => error.reason(),
            Self::Disk(_) => "Disk",
        }
    }
}

#[derive(Debug)]
pub(super) struct Uploads {
    queue: Mutex<Queue>,
    changed: Notify,
    storage: Storage,
    usage: Arc<Usage>,
    meters: SpoolMeters,
}

impl Uploads {
    pub(super) fn new(storage: Storage, usage: Arc<Usage>, meters: SpoolMeters) -> Self {
        Self {
            queue: Mutex::default(),
            changed: Notify::new(),
            storage,
            usage,
            meters,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Queues a part to be stored, after the parts that were queued before.
    pub(super) fn push(&self, part: Part) {
        let mut queue = self.queue();
        let number = queue.next;
        queue.next += 1;
        let entry = Entry {
            part,
            failures: 0,
            due: Some(Instant::now()),
        };
        queue.entries.insert(number, entry);
        self.changed(&queue);
    }

    fn changed(&self, queue: &Queue) {
        let waiting = i64::try_from(queue.entries.len()).unwrap_or(i64::MAX);
        self.meters.waiting.set(waiting);
        self.changed.notify_waiters();
    }

    pub(super) fn waiting(&self) -> Waiting {
        let queue = self.queue();
        let parts = queue.entries.values().map(|entry| &entry.part);
        Waiting {
            parts: queue.entries.len(),
            bytes: parts.clone().map(|part| part.sealed.length).sum(),
            oldest: parts.map(|part| part.since.elapsed()).max(),
        }
    }

    /// Returns once no part waits.
    pub(super) async fn all_stored(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.queue().entries.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Stores one part after the other, without end.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.take() {
                Next::Part(number, part) => self.upload(number, &part).await,
                Next::At(due) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
                Next::Nothing => changed.await,
            }
        }
    }

    /// Stores the oldest part that is due; `false` if none is.
    #[cfg(test)]
    pub(super) async fn upload_one(&self) -> bool {
        let Next::Part(number, part) = self.take() else {
            return false;
        };
        self.upload(number, &part).await;
        true
    }

    fn take(&self) -> Next {
        let now = Instant::now();
        let mut queue = self.queue();
        if let Some(pause) = queue.pause {
            if now < pause.until {
                return Next::At(pause.until);
            }
            if queue.entries.values().any(|entry| entry.due.is_none()) {
                return Next::Nothing;
            }
        }
        let mut later = None;
        for (number, entry) in &mut queue.entries {
            match entry.due {
                Some(due) if due <= now => {
                    entry.due = None;
                    return Next::Part(*number, entry.part.clone());
                }
                Some(due) => later = Some(later.map_or(due, |later: Instant| later.min(due))),
                None => {}
            }
        }
        later.map_or(Next::Nothing, Next::At)
    }

    async fn upload(&self, number: u64, part: &Part) {
        match self.store(part).await {
            Ok(()) => {
                self.usage
                    .give_back(&part.session.share, part.sealed.length);
                self.meters.stored.inc();
                let mut queue = self.queue();
                queue.entries.remove(&number);
                queue.logged.clear();
                queue.pause = None;
                self.changed(&queue);
            }
            Err(Failure::Different) => {
                self.meters.different.inc();
                tracing::error!(
                    part = part.sealed.name,
                    kept = %part.sealed.path.display(),
                    "failed to store a part of a recording: another object has its name; find the \
                     client that wrote it, and keep the gate's copy"
                );
                let mut queue = self.queue();
                queue.entries.remove(&number);
                self.changed(&queue);
            }
            Err(failure) => self.retry(number, &part.sealed.name, &failure),
        }
    }

    /// Reports a failed attempt, and schedules the next one.
    fn retry(&self, number: u64, part: &str, failure: &Failure) {
        let (reason, error) = (failure.reason(), failure.to_string());
        let is_implemented = !matches!(
            failure,
            Failure::Storage(StorageError::NotImplemented { .. })
        );
        self.meters.failed(reason);
        let mut queue = self.queue();
        if !queue.logged.insert(reason) {
            tracing::debug!(part, reason, error, "failed to store a part");
        } else if is_implemented {
            tracing::warn!(part, reason, error, "failed to store recordings; retrying");
        } else {
            tracing::error!(
                part,
                reason,
                error,
                "failed to store recordings: the server does not implement a header of the upload"
            );
        }
        let now = Instant::now();
        if !is_implemented {
            queue.pause = Some(Pause::after(queue.pause, now));
        }
        if let Some(entry) = queue.entries.get_mut(&number) {
            entry.due = Some(now + backoff(entry.failures));
            entry.failures = entry.failures.saturating_add(1);
        }
        self.changed(&queue);
    }

    async fn store(&self, part: &Part) -> Result<(), Failure> {
        let Sealed { name, path, .. } = &part.sealed;
        let read = tokio::fs::read(path).await.map_err(Failure::Disk)?;
        let bytes = Bytes::from(read);
        let put = self.storage.put(name, bytes.clone()).await;
        if put.map_err(Failure::Storage)? == Put::Exists {
            self.check_same(name, &bytes).await?;
        }
        let (session, sealed) = (Arc::clone(&part.session), part.sealed.clone());
        let removed = tokio::task::spawn_blocking(move || session.stored(&sealed)).await;
        let removed = removed.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        removed.map_err(Failure::Disk)
    }

    /// Checks that the stored content is the content to store: the response of an earlier attempt may have been lost.
    async fn check_same(&self, name: &str, bytes: &Bytes) -> Result<(), Failure> {
        match self.storage.get(name, bytes.len()).await {
            Ok(Some(stored)) if stored == bytes => Ok(()),
            Ok(Some(_)) | Err(StorageError::TooLarge { .. }) => Err(Failure::Different),
            Ok(None) => Err(Failure::Storage(StorageError::Unavailable {
                what: "store",
                name: name.to_owned(),
                why: "the conflicting object does not exist any more".to_owned(),
            })),
            Err(error) => Err(Failure::Storage(error)),
        }
    }
}

impl Pause {
    /// Returns the pause after a failure at `now`. Attempts that began before the last pause do not extend it.
    fn after(last: Option<Self>, now: Instant) -> Self {
        let failures = match last {
            Some(last) if now < last.until => return last,
            Some(last) => last.failures.saturating_add(1),
            None => 0,
        };
        Self {
            failures,
            until: now + backoff(failures),
        }
    }
}

/// Returns the backoff after the given number of failures before the last one.
fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF
        .saturating_mul(2_u32.saturating_pow(failures))
        .min(LAST_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_backoff_grows_to_one_minute() {
        let seconds = [0, 1, 2, 5, 6, 7, 1000, u32::MAX].map(|n| backoff(n).as_secs());
        assert_eq!(seconds, [1, 2, 4, 32, 60, 60, 60, 60]);
    }
}
