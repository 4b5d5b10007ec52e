//! Files in folders that the agent can write, too. Each step of a path is opened separately and must not be a symbolic
//! link, so that no file outside is read or written, regardless of the content of the folder. Only regular files are
//! opened, so that no operation waits for the agent.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// The mode of a folder. Folders, and files that are created in them, belong to the group that all containers of a run
/// share.
const FOLDER: u32 = 0o2770;
/// The mode of a file that the agent or a runtime may write, too.
const FILE: u32 = 0o660;

/// A folder below a trusted folder. It need not exist, and may be removed at any time.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    names: Vec<String>,
}

impl Directory {
    /// Creates a reference to the folder `path` in `root`, a mount that the agent cannot replace.
    ///
    /// # Errors
    /// When the path is not in `root`, or has steps such as `..`.
    pub(crate) fn new(root: &Path, path: &Path) -> Result<Self> {
        let steps = path
            .strip_prefix(root)
            .with_context(|| format!("{} is not in {}", path.display(), root.display()))?;
        let mut names = Vec::new();
        for step in steps.components() {
            match step {
                Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
                _ => bail!("{} is not a plain path", path.display()),
            }
        }
        Ok(Self {
            root: root.to_owned(),
            names,
        })
    }

    fn path(&self) -> PathBuf {
        self.names
            .iter()
            .fold(self.root.clone(), |path, name| path.join(name))
    }

    fn describe(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }

    /// Opens the folder. With `make`, creates it and its parents where they are missing.
    fn open(&self, make: bool) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = rustix::fs::open(&self.root, flags, Mode::empty())
            .with_context(|| format!("failed to open {}", self.root.display()))?;
        for name in &self.names {
            let enter =
                || rustix::fs::openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty());
            let next = match enter() {
                Err(Errno::NOENT) if make => {
                    let made = rustix::fs::mkdirat(&folder, name, Mode::from(FOLDER));
                    let next = enter();
                    if let (Ok(()), Ok(next)) = (made, &next) {
                        // The umask of the process removed bits. With an empty umask, a failure has no effect.
                        let _ = rustix::fs::fchmod(next, Mode::from(FOLDER));
                    }
                    next
                }
                entered => entered,
            };
            folder = match next {
                Err(Errno::LOOP | Errno::NOTDIR) => bail!(
                    "{} is not used: {name} in it is not a directory of oz",
                    self.path().display()
                ),
                next => {
                    next.with_context(|| format!("failed to open {}", self.path().display()))?
                }
            };
        }
        Ok(folder)
    }

    /// Creates the folder and its parents.
    pub(crate) fn make(&self) -> Result<()> {
        self.open(true).map(drop)
    }

    /// Opens a regular file for reading; `None` if it does not exist.
    pub(crate) fn read(&self, name: &str) -> Result<Option<File>> {
        let folder = match self.open(false) {
            Err(error) if is_missing(&error) => return Ok(None),
            folder => folder?,
        };
        // Opened for writing too where this is allowed, so that the space of the read data can be freed.
        match self.plain(&folder, name, OFlags::RDWR) {
            Err(error) if is_missing(&error) => Ok(None),
            Err(_) => match self.plain(&folder, name, OFlags::RDONLY) {
                Err(error) if is_missing(&error) => Ok(None),
                file => file.map(Some),
            },
            file => file.map(Some),
        }
    }

    /// Opens a regular file for appending, and creates it where it is missing.
    pub(crate) fn append(&self, name: &str) -> Result<File> {
        let folder = self.open(true)?;
        self.plain(
            &folder,
            name,
            OFlags::RDWR | OFlags::APPEND | OFlags::CREATE,
        )
    }

    /// Opens a regular file for reading and writing at any position, and creates it where it is missing.
    pub(crate) fn update(&self, name: &str) -> Result<File> {
        let folder = self.open(true)?;
        self.plain(&folder, name, OFlags::RDWR | OFlags::CREATE)
    }

    fn plain(&self, folder: &OwnedFd, name: &str, flags: OFlags) -> Result<File> {
        // Non-blocking: a pipe without a second end, or a lease of the agent, would block this container.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(folder, name, flags, Mode::from(FILE));
        let opened = match opened {
            Err(Errno::LOOP) => bail!("{} is not used: it is a link", self.describe(name)),
            opened => opened.with_context(|| format!("failed to open {}", self.describe(name)))?,
        };
        let found = rustix::fs::fstat(&opened)
            .with_context(|| format!("failed to inspect {}", self.describe(name)))?;
        ensure!(
            FileType::from_raw_mode(found.st_mode) == FileType::RegularFile,
            "{} is not used: it is not a plain file",
            self.describe(name)
        );
        if flags.contains(OFlags::CREATE) && found.st_size == 0 {
            let _ = rustix::fs::fchmod(&opened, Mode::from(FILE));
        }
        Ok(File::from(opened))
    }

    /// Returns the device and inode of the file that has this name now, without following a link.
    pub(crate) fn identity(&self, name: &str) -> Option<(u64, u64)> {
        let folder = self.open(false).ok()?;
        let found = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((found.st_dev, found.st_ino))
    }

    /// Returns the start of a file, at most `most` bytes, and whether this is the whole file; `None` if it does not
    /// exist.
    pub(crate) fn read_start(&self, name: &str, most: usize) -> Result<Option<(Vec<u8>, bool)>> {
        let Some(file) = self.read(name)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        file.take(limit)
            .read_to_end(&mut bytes)
            .with_context(|| format!("failed to read {}", self.describe(name)))?;
        let is_whole = bytes.len() <= most;
        bytes.truncate(most);
        Ok(Some((bytes, is_whole)))
    }

    /// Replaces the file with this name atomically: a reader sees the old or the new content.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
        use std::io::Write as _;

        let folder = self.open(true)?;
        let describe = || format!("failed to write {}", self.describe(name));
        let temporary = format!(".{name}.new");
        // A file that the agent may have put there; if it is a folder, the next step reports an error.
        let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(
            &folder,
            &temporary,
            flags | OFlags::CLOEXEC,
            Mode::from(mode),
        )
        .with_context(describe)?;
        let _ = rustix::fs::fchmod(&file, Mode::from(mode));
        let mut file = File::from(file);
        let written = file.write_all(bytes);
        let placed = match written {
            Ok(()) => rustix::fs::renameat(&folder, &temporary, &folder, name).map_err(Into::into),
            Err(error) => Err(error),
        };
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
        }
        placed.with_context(describe)
    }

    /// Removes a file or link, if it exists.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let folder = self.open(true)?;
        match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("failed to remove {}", self.describe(name)))
            }
        }
    }
}

/// Checks whether an error reports that a file or folder does not exist.
fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Errno>() == Some(&Errno::NOENT)
}
