//! Recordings on the gate's own disk, until they are stored: the spool takes lines and gives parts. A terminal does
//! not wait for the store; the next process takes up the recordings that a process leaves.

mod directories;
mod disk;
mod meters;
mod open;
mod recording;
mod recover;
mod session;
mod state;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unimplemented;
mod uploads;
mod usage;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use oz_gating::recording::{Head, SessionKey};
use oz_recording::age::Recipient;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use meters::SpoolMeters;
pub(crate) use recording::{Recording, SpoolError};
pub(crate) use uploads::Waiting;
pub(crate) use usage::{Full, Share, ShareFull};

use crate::storage::Storage;
use directories::Directories;
use disk::Disk;
use recover::TakenUp;
use session::{Sealed, Session};
use uploads::{Part, Uploads};
use usage::Usage;

/// The number of parts that are packed at once: each is in memory during this.
const SEALS_AT_ONCE: usize = 4;

/// The options of a spool.
#[derive(Clone, Debug)]
pub(crate) struct SpoolOptions {
    /// The directory, which no other process uses.
    pub(crate) directory: PathBuf,
    /// The capacity in bytes. Parts that are being sealed may take space twice for a moment: four parts at most.
    pub(crate) limit: u64,
    /// The recipients for the encryption of recordings before any data of them is on the disk; unencrypted if there are
    /// none.
    pub(crate) recipients: Vec<Recipient>,
    /// The metrics of the spool.
    pub(crate) meters: SpoolMeters,
}

/// A session that an earlier process left open, sealed up to the last whole line on the disk. Each start finds it again
/// until it is forgotten ([`Spool::forget`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// The key of the session.
    pub(crate) key: SessionKey,
    /// The head of the session after its last part.
    pub(crate) head: Head,
    /// The first line without its line break, the header of the asciicast, if it was no longer than 64 KiB; without the
    /// command, if the recording is encrypted.
    pub(crate) header: Option<Vec<u8>>,
    /// The recipients for the encryption of the recording.
    pub(crate) recipients: Vec<Recipient>,
}

/// The spool of the [module](self).
#[derive(Debug)]
pub(crate) struct Spool {
    directories: Arc<Directories>,
    usage: Arc<Usage>,
    uploads: Arc<Uploads>,
    seals: Arc<Semaphore>,
    left_open: Mutex<BTreeMap<SessionKey, Arc<Session>>>,
    /// The upload tasks, which end with the spool.
    workers: JoinSet<()>,
}

impl Spool {
    /// Opens the directory, continues the recordings that an earlier process left there, and starts storing them.
    ///
    /// # Errors
    /// When the directory cannot be used, or another process has it open.
    pub(crate) async fn start(
        options: SpoolOptions,
        storage: Storage,
    ) -> anyhow::Result<(Arc<Self>, Vec<Recovered>)> {
        let open = move || Self::open(&options, storage, Disk::default());
        let (mut spool, recovered) = tokio::task::spawn_blocking(open).await??;
        for _ in 0..uploads::AT_ONCE {
            spool.workers.spawn(Arc::clone(&spool.uploads).run());
        }
        Ok((Arc::new(spool), recovered))
    }

    fn open(
        options: &SpoolOptions,
        storage: Storage,
        disk: Disk,
    ) -> anyhow::Result<(Self, Vec<Recovered>)> {
        let SpoolOptions {
            directory,
            limit,
            recipients,
            meters,
        } = options;
        let name = || format!("failed to use the spool {}", directory.display());
        let directories = Directories::open(directory, recipients, disk).with_context(name)?;
        let directories = Arc::new(directories);
        let usage = Arc::new(Usage::new(*limit, meters.clone()));
        let uploads = Uploads::new(storage, Arc::clone(&usage), meters.clone());
        let spool = Self {
            directories,
            usage,
            uploads: Arc::new(uploads),
            seals: Arc::new(Semaphore::new(SEALS_AT_ONCE)),
            left_open: Mutex::default(),
            workers: JoinSet::new(),
        };
        let mut recovered = Vec::new();
        let mut parts = Vec::new();
        for (key, path) in spool.directories.sessions().with_context(name)? {
            match recover::take_up(&spool.directories, &spool.usage, key.clone()) {
                Ok(Some(taken)) => recovered.extend(spool.take_up(taken, &mut parts)),
                Ok(None) => {}
                Err(error) => {
                    meters.damaged.inc();
                    let share = spool.usage.share(user(&path, &key).as_deref());
                    spool.usage.take_anyway(&share, size(&path));
                    tracing::error!(
                        session = %key, %error, path = %path.display(),
                        "failed to recover a recording that an earlier process left; it stays in \
                            the spool"
                    );
                }
            }
        }
        // The oldest part first, of any session.
        parts.sort_by_key(|part: &Part| part.since);
        for part in parts {
            spool.uploads.push(part);
        }
        Ok((spool, recovered))
    }

    fn take_up(&self, taken: TakenUp, parts: &mut Vec<Part>) -> Option<Recovered> {
        let TakenUp {
            session,
            sealed,
            was_open,
        } = taken;
        for sealed in sealed {
            self.usage.take_anyway(&session.share, sealed.length);
            parts.push(Part {
                since: since(&sealed),
                session: Arc::clone(&session),
                sealed,
            });
        }
        let (key, head) = (session.key.clone(), session.head());
        let state = session.inner().state.clone();
        was_open.then(|| {
            self.left_open().insert(key.clone(), session);
            Recovered {
                key,
                head,
                recipients: state.recipients(),
                header: state.header.map(String::into_bytes),
            }
        })
    }

    fn left_open(&self) -> MutexGuard<'_, BTreeMap<SessionKey, Arc<Session>>> {
        self.left_open.lock()
    }

    /// Returns the recipients for the encryption of new recordings.
    fn recipients(&self) -> &[Recipient] {
        &self.directories.recipients
    }

    /// Checks whether one more recording has room.
    ///
    /// # Errors
    /// When it has no room: waiting parts cannot be stored, or too much is being recorded.
    pub(crate) fn room(&self) -> Result<(), Full> {
        self.usage.room()
    }

    /// Returns the share of a user.
    pub(crate) fn share(&self, user: &str) -> Arc<Share> {
        self.usage.share(Some(user))
    }

    /// Begins to record a session of a user, of which no data may exist yet.
    pub(crate) fn begin(self: &Arc<Self>, key: SessionKey, user: &str) -> Recording {
        let session = Session::new(&self.directories, key, self.share(user));
        Recording::new(Arc::clone(self), session)
    }

    /// Removes a recovered session from the sessions that the next start finds. To be called once its head is in the
    /// audit trail.
    ///
    /// # Errors
    /// When the disk operation fails.
    pub(crate) async fn forget(&self, key: &SessionKey) -> io::Result<()> {
        let Some(session) = self.left_open().get(key).cloned() else {
            return Ok(());
        };
        blocking(move || session.finish()).await?;
        self.left_open().remove(key);
        Ok(())
    }

    /// Returns the parts that wait to be stored.
    fn waiting(&self) -> Waiting {
        self.uploads.waiting()
    }

    /// Waits until all parts are stored, but no longer than `within`. A process that stops calls it after its last
    /// session: data on the disk of a pod is lost with the pod.
    ///
    /// # Errors
    /// When parts still wait; the error counts them.
    pub(crate) async fn flush(&self, within: Duration) -> Result<(), Waiting> {
        let stored = self.uploads.all_stored();
        let stored = tokio::time::timeout(within, stored).await;
        stored.map_err(|_| self.waiting())
    }
}

/// Returns the time since which a part of an earlier process waits.
fn since(sealed: &Sealed) -> Instant {
    let modified = std::fs::metadata(&sealed.path).and_then(|metadata| metadata.modified());
    let age = modified.ok().and_then(|modified| {
        let age = SystemTime::now().duration_since(modified);
        age.ok()
    });
    let now = Instant::now();
    age.and_then(|age| now.checked_sub(age)).unwrap_or(now)
}

/// Returns the user of a session with files that could not be taken up, if its state names the user.
fn user(directory: &std::path::Path, key: &SessionKey) -> Option<String> {
    let state = state::State::read(directory, key).ok().flatten();
    state.and_then(|state| state.user())
}

/// Returns the total size of the files in a directory in bytes.
fn size(directory: &std::path::Path) -> u64 {
    let entries = directories::entries(directory);
    let sizes = entries
        .into_iter()
        .flatten()
        .filter_map(|path| std::fs::metadata(path).ok())
        .map(|metadata| metadata.len());
    sizes.sum()
}

/// Runs work that waits for a disk on a thread for blocking work. The work is completed even if the future is dropped.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}
