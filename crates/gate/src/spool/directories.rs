//! The directories of sessions: `NAMESPACE/REQUEST/SESSION`, the same names as in the store of recordings. Only one is
//! made or removed at a time, as the directory of one session may be removed while that of another session is made
//! below the same parent.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use oz_gating::recording::SessionKey;
use oz_recording::age::Recipient;
use parking_lot::Mutex;

use super::disk::Disk;
use super::state;

/// The file with the lock of the spool's owner.
const LOCK: &str = "lock";

/// The directories of the [module](self).
#[derive(Debug)]
pub(super) struct Directories {
    root: PathBuf,
    pub(super) disk: Disk,
    /// The recipients for the encryption of the files in the directories.
    pub(super) recipients: Vec<Recipient>,
    turn: Mutex<()>,
    /// The lock, which is held as long as the file is open.
    _lock: File,
}

impl Directories {
    /// Opens the spool in `root`, which no other process may have open.
    pub(super) fn open(root: &Path, recipients: &[Recipient], disk: Disk) -> io::Result<Self> {
        disk.make(root)?;
        let path = root.join(LOCK);
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        lock.try_lock()
            .map_err(|error| io::Error::other(format!("another process uses it: {error}")))?;
        Ok(Self {
            root: root.to_owned(),
            disk,
            recipients: recipients.to_vec(),
            turn: Mutex::default(),
            _lock: lock,
        })
    }

    pub(super) fn path(&self, key: &SessionKey) -> PathBuf {
        let above = self.root.join(&key.namespace).join(&key.request);
        above.join(&key.session)
    }

    /// Makes the directory of a session. An existing directory belongs to another session.
    pub(super) fn make(&self, directory: &Path) -> io::Result<()> {
        let _turn = self.turn.lock();
        if directory.try_exists()? {
            let why = format!("{} exists already", directory.display());
            return Err(io::Error::new(ErrorKind::AlreadyExists, why));
        }
        self.disk.make(directory)
    }

    /// Syncs the directory of a session and its parents, with their entries, to the disk.
    pub(super) fn sync(&self, directory: &Path) -> io::Result<()> {
        let above = directory.ancestors();
        for directory in above.take_while(|one| one.starts_with(&self.root)) {
            match File::open(directory) {
                Ok(directory) => directory.sync_all()?,
                // The directory was removed in the meantime.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes the directory of a session of which no data is needed any more. The state is removed last: without it,
    /// the other files cannot be identified.
    pub(super) fn remove(&self, directory: &Path) -> io::Result<()> {
        let _turn = self.turn.lock();
        for entry in entries(directory)? {
            if !entry.ends_with(state::NAME) {
                self.disk.remove(&entry)?;
            }
        }
        self.disk.remove(&directory.join(state::NAME))?;
        let above = directory.ancestors();
        for directory in above.take_while(|one| one.starts_with(&self.root) && *one != self.root) {
            if !self.disk.remove_empty(directory)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the sessions that have directories, with their directories, in order.
    pub(super) fn sessions(&self) -> io::Result<Vec<(SessionKey, PathBuf)>> {
        let mut sessions = Vec::new();
        for namespace in entries(&self.root)? {
            for request in entries(&namespace)? {
                for directory in entries(&request)? {
                    let below = directory.strip_prefix(&self.root).unwrap_or(&directory);
                    match below.to_str().and_then(SessionKey::read) {
                        Some(key) if directory.is_dir() => sessions.push((key, directory)),
                        _ => {
                            tracing::warn!(path = %directory.display(), "the spool has an entry \
                                that is not a session");
                        }
                    }
                }
            }
        }
        sessions.sort();
        Ok(sessions)
    }
}

/// Returns the entries of a directory; none if it is not a directory.
pub(super) fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}
