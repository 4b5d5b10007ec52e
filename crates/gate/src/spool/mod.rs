//! Recordings on the gate's own disk, until they are stored: lines come in, parts go out. The terminal waits for no
//! store; what a process leaves, the next one takes up.

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

/// How many parts are packed at once: each is in memory meanwhile.
const SEALS_AT_ONCE: usize = 4;

/// What a spool needs to know.
#[derive(Clone, Debug)]
pub(crate) struct SpoolOptions {
    /// The directory, which no other process has.
    pub(crate) directory: PathBuf,
    /// How many bytes it takes. What is being sealed may be there twice for a moment: four parts at most.
    pub(crate) limit: u64,
    /// To whom recordings are encrypted, before anything of them is on the disk; to nobody if there are none.
    pub(crate) recipients: Vec<Recipient>,
    /// Where it counts.
    pub(crate) meters: SpoolMeters,
}

/// A session that an earlier process left open, sealed as far as whole lines were on the disk. It is found again at
/// each start until it is forgotten ([`Spool::forget`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Which.
    pub(crate) key: SessionKey,
    /// Its head, after its last part.
    pub(crate) head: Head,
    /// Its first line without its end, the header of the asciicast, if it was no longer than 64 KiB; without the
    /// command, if it is encrypted.
    pub(crate) header: Option<Vec<u8>>,
    /// To whom it is encrypted.
    pub(crate) recipients: Vec<Recipient>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Spool {
    directories: Arc<Directories>,
    usage: Arc<Usage>,
    uploads: Arc<Uploads>,
    seals: Arc<Semaphore>,
    left_open: Mutex<BTreeMap<SessionKey, Arc<Session>>>,
    /// They end with the spool.
    workers: JoinSet<()>,
}

impl Spool {
    /// Opens the directory, takes up what an earlier process left there, and starts storing it.
    ///
    /// # Errors
    /// When the directory cannot be used, or another process has it.
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
                        "failed to take up a recording that an earlier process left; it stays where it is"
                    );
                }
            }
        }
        // The oldest first, of whichever session.
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

    /// To whom what is recorded now is encrypted.
    fn recipients(&self) -> &[Recipient] {
        &self.directories.recipients
    }

    /// That one more recording has room.
    ///
    /// # Errors
    /// When it has not: what waits cannot be stored, or too much is being recorded.
    pub(crate) fn room(&self) -> Result<(), Full> {
        self.usage.room()
    }

    /// The part of the spool that a user has.
    pub(crate) fn share(&self, user: &str) -> Arc<Share> {
        self.usage.share(Some(user))
    }

    /// Begins to record a session of a user, of which nothing may be there yet.
    pub(crate) fn begin(self: &Arc<Self>, key: SessionKey, user: &str) -> Recording {
        let session = Session::new(&self.directories, key, self.share(user));
        Recording::new(Arc::clone(self), session)
    }

    /// Has a session that was recovered not be found again. To be called once its head is on record.
    ///
    /// # Errors
    /// When the disk does not do it.
    pub(crate) async fn forget(&self, key: &SessionKey) -> io::Result<()> {
        let Some(session) = self.left_open().get(key).cloned() else {
            return Ok(());
        };
        blocking(move || session.finish()).await?;
        self.left_open().remove(key);
        Ok(())
    }

    /// What waits to be stored.
    fn waiting(&self) -> Waiting {
        self.uploads.waiting()
    }

    /// Waits until all parts are stored, but no longer than that. A process that stops calls it after its last session:
    /// what is on the disk of a pod is gone with the pod.
    ///
    /// # Errors
    /// What still waits.
    pub(crate) async fn flush(&self, within: Duration) -> Result<(), Waiting> {
        let stored = self.uploads.all_stored();
        let stored = tokio::time::timeout(within, stored).await;
        stored.map_err(|_| self.waiting())
    }
}

/// Since when a part waits that an earlier process left.
fn since(sealed: &Sealed) -> Instant {
    let modified = std::fs::metadata(&sealed.path).and_then(|metadata| metadata.modified());
    let age = modified.ok().and_then(|modified| {
        let age = SystemTime::now().duration_since(modified);
        age.ok()
    });
    let now = Instant::now();
    now.checked_sub(age.unwrap_or_default()).unwrap_or(now)
}

/// Whose the files in a directory are that could not be taken up, as far as its state says so.
fn user(directory: &std::path::Path, key: &SessionKey) -> Option<String> {
    let state = state::State::read(directory, key).ok().flatten();
    state.and_then(|state| state.user())
}

/// How many bytes the files in a directory have.
fn size(directory: &std::path::Path) -> u64 {
    let entries = directories::entries(directory).unwrap_or_default();
    let sizes = entries
        .iter()
        .filter_map(|path| std::fs::metadata(path).ok())
        .map(|metadata| metadata.len());
    sizes.sum()
}

/// Does what waits for a disk where nothing else waits for it. It is done also if nobody waits for its end.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}
