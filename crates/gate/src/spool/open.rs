//! The open part of a session: a file to which lines are appended, encrypted if recipients are configured. The key
//! exists only in memory, so that the recipients, and not the next process, can read the data that a process leaves.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oz_recording::age::Recipient;
use oz_recording::frames::{OVERHEAD, Sealer};

use super::disk::Disk;

/// The open part of the [module](self).
#[derive(Debug)]
pub(super) struct Open {
    pub(super) file: Arc<File>,
    path: PathBuf,
    length: u64,
    sealer: Option<Sealer>,
    /// The length of the file when it was made: less than 5 KiB, which do not count as used room.
    beginning: u64,
}

impl Open {
    /// Makes the file in `directory`.
    pub(super) fn make(
        disk: &Disk,
        directory: &Path,
        number: u32,
        recipients: &[Recipient],
    ) -> io::Result<Self> {
        let (sealer, beginning) = if recipients.is_empty() {
            (None, Vec::new())
        } else {
            let (sealer, beginning) = Sealer::begin(recipients).map_err(io::Error::other)?;
            (Some(sealer), beginning)
        };
        let path = directory.join(name(number, sealer.is_some()));
        let open = Self {
            file: Arc::new(disk.create(&path)?),
            path,
            length: 0,
            sealer,
            beginning: beginning.len() as u64,
        };
        let written = if beginning.is_empty() {
            Ok(())
        } else {
            disk.append(&open.file, 0, &beginning)
        };
        match written {
            Ok(()) => Ok(Self {
                length: open.beginning,
                ..open
            }),
            Err(error) => {
                // Another attempt makes the file anew.
                let _ = disk.remove(&open.path);
                Err(error)
            }
        }
    }

    /// Appends whole lines. After an error the file is as long as before, or its content is not known.
    pub(super) fn append(&mut self, disk: &Disk, lines: &[u8]) -> io::Result<()> {
        let length = match &mut self.sealer {
            None => {
                disk.append(&self.file, self.length, lines)?;
                lines.len()
            }
            Some(sealer) => {
                let frame = sealer.seal(lines).map_err(io::Error::other)?;
                disk.append(&self.file, self.length, &frame)?;
                frame.len()
            }
        };
        self.length += length as u64;
        Ok(())
    }

    /// Returns the lines in the file. A failed write may have left bytes, which are left out.
    pub(super) fn lines(&self) -> io::Result<Vec<u8>> {
        let mut bytes = fs::read(&self.path)?;
        bytes.truncate(usize::try_from(self.length).unwrap_or(usize::MAX));
        match &self.sealer {
            None => Ok(bytes),
            Some(sealer) => sealer.open(&bytes).map_err(io::Error::other),
        }
    }

    /// Returns the number of appended bytes on the disk.
    pub(super) const fn appended(&self) -> u64 {
        self.length - self.beginning
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the number of bytes that appending adds on the disk to the length of the lines.
pub(super) const fn overhead(recipients: &[Recipient]) -> u64 {
    if recipients.is_empty() {
        0
    } else {
        OVERHEAD as u64
    }
}

const OPEN: &str = "open-";
const CAST: &str = ".cast";
const FRAMES: &str = ".frames";

fn name(number: u32, encrypted: bool) -> String {
    let ending = if encrypted { FRAMES } else { "" };
    format!("{OPEN}{number:06}{CAST}{ending}")
}

/// Reads a name: the number of the part, and whether it is encrypted.
pub(super) fn read_name(text: &str) -> Option<(u32, bool)> {
    let rest = text.strip_prefix(OPEN)?;
    let (rest, encrypted) = match rest.strip_suffix(FRAMES) {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let number = rest.strip_suffix(CAST)?.parse().ok()?;
    (name(number, encrypted) == text).then_some((number, encrypted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for number in [0, 7, 999_999, 1_000_000] {
            for encrypted in [false, true] {
                let name = name(number, encrypted);
                assert_eq!(read_name(&name), Some((number, encrypted)));
            }
        }
        for name in [
            "open-1.cast",
            "open-000001",
            "000001.cast",
            "open--00001.cast",
            "open-000001.frames",
            "open-000001.cast.frames.frames",
        ] {
            assert_eq!(read_name(name), None, "{name}");
        }
    }
}
