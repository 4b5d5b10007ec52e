//! The recording of one open session.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use oz_gating::recording::Head;
use oz_recording::age::Recipient;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::session::Session;
use super::uploads::Part;
use super::{Full, Share, Spool, blocking};

/// The maximum time until lines are on the disk, and the interval at which a session's lines are synced.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The reason for which data could not be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// The spool has no room, and nothing was appended.
    #[error(transparent)]
    Full(#[from] Full),
    /// The disk operation failed.
    #[error("failed to record session {session}: {source}")]
    Io {
        /// The session.
        session: String,
        /// The cause.
        source: io::Error,
    },
}

impl SpoolError {
    /// Returns the reason for users: without the names of sessions and files.
    pub(crate) fn without_names(&self) -> String {
        match self {
            Self::Full(full) => full.to_string(),
            Self::Io { source, .. } => {
                let kind = source.kind();
                format!(
                    "the gate failed to write to its disk ({kind}), and its log has the details"
                )
            }
        }
    }
}

/// The recording of the [module](self). If it is dropped, it is left as if the process had been killed: the next
/// process recovers it.
#[derive(Debug)]
pub(crate) struct Recording {
    spool: Arc<Spool>,
    session: Arc<Session>,
    syncs: Arc<Syncs>,
}

impl Recording {
    pub(super) fn new(spool: Arc<Spool>, session: Session) -> Self {
        Self {
            spool,
            session: Arc::new(session),
            syncs: Arc::default(),
        }
    }

    /// Appends whole lines to the open part. They survive the end of the process at once, and a loss of power after a
    /// second.
    ///
    /// # Errors
    /// When the lines are not appended. After any error but [`SpoolError::Full`], no lines are appended until the part
    /// is sealed.
    pub(crate) async fn append(&mut self, lines: &[u8]) -> Result<(), SpoolError> {
        debug_assert!(lines.is_empty() || lines.ends_with(b"\n"), "lines end");
        if lines.is_empty() {
            return Ok(());
        }
        let bytes = lines.len() as u64 + self.session.overhead();
        self.spool.usage.take(&self.session.share, bytes)?;
        let (session, lines) = (Arc::clone(&self.session), lines.to_vec());
        let usage = Arc::clone(&self.spool.usage);
        let append = move || {
            let appended = session.append(&lines);
            if appended.is_err() {
                usage.give_back(&session.share, bytes);
            }
            appended
        };
        let file = blocking(append).await.map_err(|error| self.failed(error))?;
        self.syncs.request(&self.session, file);
        Ok(())
    }

    /// Closes the open part, which is stored from then on. Returns the head after it.
    ///
    /// # Errors
    /// When the disk operation fails. The part is still open then, and may be sealed again.
    pub(crate) async fn seal(&mut self) -> Result<Head, SpoolError> {
        let turn = Arc::clone(&self.spool.seals).acquire_owned().await;
        let (session, spool) = (Arc::clone(&self.session), Arc::clone(&self.spool));
        let seal = move || {
            let _turn = turn;
            let Some(sealed) = session.seal()? else {
                return Ok(session.head());
            };
            let usage = &spool.usage;
            usage.replace(&session.share, sealed.lines, sealed.length);
            let head = session.head();
            spool.uploads.push(Part {
                session,
                sealed,
                since: Instant::now(),
            });
            Ok(head)
        };
        blocking(seal).await.map_err(|error| self.failed(error))
    }

    /// Seals the open part, and forgets the session: no later process recovers it. Therefore the caller first records
    /// the head that [`Recording::seal`] returns; the head that this function returns is then the same.
    ///
    /// # Errors
    /// When the disk operation fails.
    pub(crate) async fn finish(mut self) -> Result<Head, SpoolError> {
        let head = self.seal().await?;
        let session = Arc::clone(&self.session);
        let finished = blocking(move || session.finish()).await;
        finished.map_err(|error| self.failed(error))?;
        Ok(head)
    }

    /// Discards the recording of a session that was not opened, except for stored parts.
    ///
    /// # Errors
    /// When the disk operation fails.
    pub(crate) async fn discard(self) -> Result<(), SpoolError> {
        let (session, usage) = (Arc::clone(&self.session), Arc::clone(&self.spool.usage));
        let discarded = blocking(move || {
            let freed = session.discard()?;
            usage.give_back(&session.share, freed);
            Ok(())
        });
        discarded.await.map_err(|error| self.failed(error))
    }

    /// Returns the share of the session's user.
    pub(crate) fn share(&self) -> &Arc<Share> {
        &self.session.share
    }

    /// Returns the recipients for the encryption of the recording.
    pub(crate) fn recipients(&self) -> &[Recipient] {
        self.spool.recipients()
    }

    fn failed(&self, error: io::Error) -> SpoolError {
        if error.kind() == io::ErrorKind::StorageFull {
            return SpoolError::Full(self.spool.usage.full());
        }
        SpoolError::Io {
            session: self.session.key.to_string(),
            source: error,
        }
    }
}

/// The schedule of the syncs of lines to the disk: at once, and then each second as long as lines are appended.
#[derive(Debug, Default)]
struct Syncs {
    inner: Mutex<Requested>,
}

#[derive(Debug, Default)]
struct Requested {
    requested: bool,
    last: Option<Instant>,
    #[cfg(test)]
    begun: Vec<Instant>,
}

impl Syncs {
    fn request(self: &Arc<Self>, session: &Arc<Session>, file: Arc<File>) {
        let mut inner = self.inner.lock();
        if std::mem::replace(&mut inner.requested, true) {
            return;
        }
        let due = inner.last.map(|last| last + SYNC_INTERVAL);
        let (syncs, session) = (Arc::clone(self), Arc::downgrade(session));
        tokio::spawn(async move {
            if let Some(due) = due {
                tokio::time::sleep_until(due).await;
            }
            syncs.begun();
            // The session may be over.
            let Some(session) = session.upgrade() else {
                return;
            };
            let _ = blocking(move || {
                session.sync(&file);
                Ok(())
            })
            .await;
        });
    }

    /// Records the begin of a sync: lines that are appended from now on need another sync.
    fn begun(&self) {
        let mut inner = self.inner.lock();
        inner.requested = false;
        let now = Instant::now();
        inner.last = Some(now);
        #[cfg(test)]
        inner.begun.push(now);
    }
}

#[cfg(test)]
impl Recording {
    /// Returns the head after the last sealed part.
    pub(super) fn head(&self) -> Head {
        self.session.head()
    }

    /// Returns the times at which lines were synced to the disk.
    pub(super) fn synced(&self) -> Vec<Instant> {
        let inner = self.syncs.inner.lock();
        inner.begun.clone()
    }
}
