//! The file operations of the spool, step by step. A process may be killed between any two of them, and in the middle
//! of a write; the tests do so at each step.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The suffix of the names of incomplete files.
pub(super) const PARTIAL: &str = ".partial";

/// The disk operations. Clones count the same steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// The number of steps until the process is killed.
    #[cfg(test)]
    pub(super) left: Option<std::sync::Arc<std::sync::atomic::AtomicI64>>,
}

impl Disk {
    /// Makes a directory and its parents, accessible to the owner only.
    pub(super) fn make(&self, directory: &Path) -> io::Result<()> {
        self.step()?;
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory)
    }

    /// Creates a file that does not exist yet.
    pub(super) fn create(&self, path: &Path) -> io::Result<File> {
        self.step()?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(path)
    }

    /// Writes at the end of a file of the given length. A failed write leaves nothing behind.
    pub(super) fn append(&self, file: &File, length: u64, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.step() {
            // The process is killed in the middle of the write.
            let _ = (&mut &*file).write_all(&bytes[..bytes.len() / 2]);
            return Err(error);
        }
        let written = (&mut &*file).write_all(bytes);
        if written.is_err() {
            use std::io::{Seek as _, SeekFrom};
            file.set_len(length)?;
            (&mut &*file).seek(SeekFrom::Start(length))?;
        }
        written
    }

    /// Replaces the file with this name, all or nothing, and syncs it to the disk if `sync` is true.
    pub(super) fn replace(&self, path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(PARTIAL);
        let partial = Path::new(&partial);
        match fs::remove_file(partial) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = self.create(partial)?;
        self.append(&file, 0, bytes)?;
        if sync {
            self.step()?;
            file.sync_all()?;
        }
        self.step()?;
        fs::rename(partial, path)?;
        match path.parent() {
            Some(directory) if sync => self.sync(directory),
            _ => Ok(()),
        }
    }

    /// Syncs a directory, or a file that is known by its name only, to the disk.
    pub(super) fn sync(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        File::open(path)?.sync_all()
    }

    /// Removes a file, if it exists.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes a directory; `false` if it is not empty.
    pub(super) fn remove_empty(&self, directory: &Path) -> io::Result<bool> {
        self.step()?;
        match fs::remove_dir(directory) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(error) => Err(error),
        }
    }

    #[cfg(not(test))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "tests fail here"
    )]
    fn step(&self) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    fn step(&self) -> io::Result<()> {
        use std::sync::atomic::Ordering::SeqCst;
        match &self.left {
            Some(left) if left.fetch_sub(1, SeqCst) <= 0 => Err(io::Error::other("killed")),
            _ => Ok(()),
        }
    }
}
