//! The directory of a session in the spool: its state, the open part, and the parts that wait to be stored.
//!
//! A part is sealed in steps, each of which may be the last of the process:
//! 1. the lines are packed, and encrypted, into a file of another name, which is synced,
//! 2. the file gets its name,
//! 3. the state records the part (before this no reader has seen the part, and it may be made anew),
//! 4. the open file is removed, and the part may be stored.
//!
//! All of this waits for a disk, and is to be called on a thread for blocking work.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oz_gating::recording::{Form, Head, SessionKey};
use oz_recording::age;
use parking_lot::{Mutex, MutexGuard};

use super::directories::Directories;
use super::disk::Disk;
use super::open::Open;
use super::state::State;
use super::usage::Share;

/// The session of the [module](self).
#[derive(Debug)]
pub(super) struct Session {
    pub(super) key: SessionKey,
    pub(super) directory: PathBuf,
    directories: Arc<Directories>,
    /// The share of the spool that the session takes room from.
    pub(super) share: Arc<Share>,
    pub(super) inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) state: State,
    /// True if the directory exists.
    pub(super) exists: bool,
    pub(super) open: Option<Open>,
    /// The number of parts that wait to be stored.
    pub(super) waiting: usize,
    /// The reason for which no lines can be appended: the content of the file is not known until a part has been
    /// sealed.
    pub(super) broken: Option<String>,
}

/// A part that may be stored.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) length: u64,
    /// The size on the disk of its lines, which no longer take room.
    pub(super) lines: u64,
}

impl Session {
    pub(super) fn new(directories: &Arc<Directories>, key: SessionKey, share: Arc<Share>) -> Self {
        let state = State::new(&key);
        Self::with(directories, key, share, (state, false))
    }

    /// Creates a session, with or without an existing directory.
    pub(super) fn with(
        directories: &Arc<Directories>,
        key: SessionKey,
        share: Arc<Share>,
        (state, exists): (State, bool),
    ) -> Self {
        Self {
            directory: directories.path(&key),
            key,
            directories: Arc::clone(directories),
            share,
            inner: Mutex::new(Inner {
                state,
                exists,
                open: None,
                waiting: 0,
                broken: None,
            }),
        }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.directories.disk
    }

    /// Returns the number of bytes that appending adds on the disk to the length of the lines.
    pub(super) fn overhead(&self) -> u64 {
        super::open::overhead(&self.directories.recipients)
    }

    /// Appends lines to the open part, which is made if it does not exist. Returns its file.
    pub(super) fn append(&self, lines: &[u8]) -> io::Result<Arc<File>> {
        let mut inner = self.inner();
        if let Some(why) = &inner.broken {
            return Err(io::Error::other(why.clone()));
        }
        if inner.open.is_none() {
            if !inner.exists {
                let recipients = &self.directories.recipients;
                let state = inner.state.clone().with_header(lines, recipients);
                self.directories.make(&self.directory)?;
                state.write(self.disk(), &self.directory, false)?;
                inner.state = state;
                inner.exists = true;
            }
            let (number, recipients) = (inner.state.head().parts, &self.directories.recipients);
            let open = Open::make(self.disk(), &self.directory, number, recipients)?;
            inner.open = Some(open);
        }
        let Some(open) = &mut inner.open else {
            return Err(io::Error::other("no part is open"));
        };
        let appended = open.append(self.disk(), lines);
        if let Err(error) = appended {
            if error.kind() != io::ErrorKind::StorageFull {
                inner.broken = Some(format!("an earlier write failed: {error}"));
            }
            return Err(error);
        }
        Ok(Arc::clone(&open.file))
    }

    /// Syncs the appended lines of a part to the disk, if the part is still open.
    pub(super) fn sync(&self, file: &Arc<File>) {
        let is_open = |inner: &Inner| match &inner.open {
            Some(open) => Arc::ptr_eq(&open.file, file),
            None => false,
        };
        if !is_open(&self.inner()) {
            return;
        }
        // Without the lock: appending does not wait for the sync.
        let synced = self.try_sync(file);
        let mut inner = self.inner();
        if let Err(error) = synced
            && is_open(&inner)
        {
            // Another attempt does not write the data again that the disk has lost.
            inner.broken = Some(format!("failed to write to the disk: {error}"));
        }
    }

    fn try_sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()?;
        let state = self.directory.join(super::state::NAME);
        match File::open(state) {
            Ok(state) => state.sync_data()?,
            // The session was finished in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        self.directories.sync(&self.directory)
    }

    /// Closes the open part, if there is one with lines.
    pub(super) fn seal(&self) -> io::Result<Option<Sealed>> {
        let mut inner = self.inner();
        let Some(open) = &inner.open else {
            return Ok(None);
        };
        let (path, appended) = (open.path().to_owned(), open.appended());
        if appended == 0 {
            self.disk().remove(&path)?;
            inner.open = None;
            inner.broken = None;
            return Ok(None);
        }
        let lines = open.lines()?;
        let sealed = match self.seal_lines(&mut inner, &lines) {
            Ok(sealed) => Sealed {
                lines: appended,
                ..sealed
            },
            Err(error) => {
                inner.broken = Some(format!("failed to seal a part: {error}"));
                return Err(error);
            }
        };
        inner.open = None;
        inner.broken = None;
        if let Err(error) = self.disk().remove(&path) {
            // The state records the end of the part: the process that takes the directory up removes the file.
            tracing::warn!(session = %self.key, %error, "failed to remove a part that is sealed");
        }
        Ok(Some(sealed))
    }

    /// Runs steps 1 to 3 for the next part with these lines.
    pub(super) fn seal_lines(&self, inner: &mut Inner, lines: &[u8]) -> io::Result<Sealed> {
        let packed = oz_recording::pack(lines)?;
        let recipients = &self.directories.recipients;
        if recipients.is_empty() {
            return self.seal_as(inner, Form::Plain, &packed);
        }
        let encrypted = age::encrypt(recipients, &packed).map_err(io::Error::other)?;
        self.seal_as(inner, Form::Encrypted, &encrypted)
    }

    /// Runs steps 1 to 3 for a part that is stored unchanged.
    pub(super) fn seal_as(
        &self,
        inner: &mut Inner,
        form: Form,
        stored: &[u8],
    ) -> io::Result<Sealed> {
        let name = self.key.part(inner.state.head().parts, form);
        let path = self.directory.join(file_name(&name));
        self.disk().replace(&path, stored, true)?;
        let state = inner.state.after(stored);
        state.write(self.disk(), &self.directory, true)?;
        inner.state = state;
        inner.waiting += 1;
        Ok(Sealed {
            name,
            path,
            length: stored.len() as u64,
            lines: 0,
        })
    }

    /// Records that a part is stored: none of its data is needed any more.
    pub(super) fn stored(&self, sealed: &Sealed) -> io::Result<()> {
        let mut inner = self.inner();
        self.disk().remove(&sealed.path)?;
        inner.waiting = inner.waiting.saturating_sub(1);
        self.remove_if_over(&inner)
    }

    /// Records that the session needs no further audit record.
    pub(super) fn finish(&self) -> io::Result<()> {
        self.finished(&mut self.inner())
    }

    /// Removes the open part, and finishes the session. Returns the size of the part in bytes.
    pub(super) fn discard(&self) -> io::Result<u64> {
        let mut inner = self.inner();
        let mut freed = 0;
        if let Some(open) = inner.open.take() {
            freed = open.appended();
            self.disk().remove(open.path())?;
        }
        self.finished(&mut inner)?;
        Ok(freed)
    }

    fn finished(&self, inner: &mut Inner) -> io::Result<()> {
        inner.state.finished = true;
        if inner.exists {
            inner.state.write(self.disk(), &self.directory, true)?;
        }
        self.remove_if_over(inner)
    }

    fn remove_if_over(&self, inner: &Inner) -> io::Result<()> {
        if !inner.exists || !inner.state.finished || inner.waiting > 0 || inner.open.is_some() {
            return Ok(());
        }
        self.directories.remove(&self.directory)
    }

    pub(super) fn head(&self) -> Head {
        self.inner().state.head()
    }
}

/// Returns the last segment of a name.
pub(super) fn file_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Returns the whole lines that were certainly written. After a loss of power, a file may be longer than its data on
/// the disk, and the rest is zeros.
pub(super) fn whole_lines(bytes: &[u8]) -> &[u8] {
    let written = bytes.iter().position(|byte| *byte == 0);
    let written = &bytes[..written.unwrap_or(bytes.len())];
    let end = written.iter().rposition(|byte| *byte == b'\n');
    &written[..end.map_or(0, |end| end + 1)]
}

/// Checks whether a file is one that was to be renamed.
pub(super) fn is_partial(path: &Path) -> bool {
    path.to_string_lossy().ends_with(super::disk::PARTIAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_written_line_is_omitted() {
        for (bytes, whole) in [
            ("", ""),
            ("[1", ""),
            ("[1]\n", "[1]\n"),
            ("[1]\n[2]\n[3", "[1]\n[2]\n"),
            ("[1]\n\0\0\0\0", "[1]\n"),
            ("[1]\n[2\0\0]\n[3]\n", "[1]\n"),
            ("\0", ""),
        ] {
            assert_eq!(whole_lines(bytes.as_bytes()), whole.as_bytes(), "{bytes:?}");
        }
    }
}
