//! The part of a session that is open: a file to which lines are appended, encrypted where that is asked for. The key
//! is in memory alone, so that what a process leaves is for the recipients, and not for the next process.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oz_recording::age::Recipient;
use oz_recording::frames::{OVERHEAD, Sealer};

use super::disk::Disk;

/// See the module.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) file: Arc<File>,
    path: PathBuf,
    length: u64,
    sealer: Option<Sealer>,
    /// How long it was when it was made: less than 5 KiB, which are not counted as room that is taken.
    beginning: u64,
}

impl Open {
    /// Makes the file, in `directory`.
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
                // Another attempt makes it anew.
                let _ = disk.remove(&open.path);
                Err(error)
            }
        }
    }

    /// Appends whole lines. After an error the file is as long as before, or what is in it is not known.
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

    /// The lines in it. What failed to be written may be there in part, and is left out.
    pub(super) fn lines(&self) -> io::Result<Vec<u8>> {
        let mut bytes = fs::read(&self.path)?;
        bytes.truncate(usize::try_from(self.length).unwrap_or(usize::MAX));
        match &self.sealer {
            None => Ok(bytes),
            Some(sealer) => sealer.open(&bytes).map_err(io::Error::other),
        }
    }

    /// How many bytes on the disk were appended.
    pub(super) const fn appended(&self) -> u64 {
        self.length - self.beginning
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// How many bytes more than lines come to the disk when they are appended.
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

/// Reads a name: which part, and whether it is encrypted.
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
