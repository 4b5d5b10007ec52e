//! A file that somebody appends lines to, read as it grows.
//!
//! The agent's raw output is a plain file, not a pipe. Images append to it (`>>`, `tee -a`) or begin it anew
//! (`>`), and all of these work on a plain file whether or not anybody reads; a pipe would block the agent while
//! this container starts again, and lose what stands in it. What that costs: a file that is begun anew and filled
//! beyond where it was before anybody looks is read from the wrong place, so an agent that uses `>` for each line
//! should use `>>`. The file would also fill the volume of a long run, so what was read is given back to the disk
//! where the file system can (holes).

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Result};
use rustix::fs::FallocateFlags;

use crate::directory::Directory;

/// The longest line that is read whole, in bytes. The rest of a longer one is skipped.
pub(crate) const MAX_LINE: usize = 1024 * 1024;
/// How much is read at once, in bytes.
const PIECE: usize = 64 * 1024;
/// What was read is given back to the disk in pieces of so many bytes.
const RETURNED: u64 = 1024 * 1024;

/// Where a file was read up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the file on its device.
    pub(crate) file: u64,
    /// Offset after the last whole line, in bytes.
    pub(crate) offset: u64,
}

/// One line of the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Its bytes, without the end of the line; the first [`MAX_LINE`] of them.
    pub(crate) bytes: &'a [u8],
    /// Whether there were more.
    pub(crate) was_cut: bool,
}

/// A file that is read as it grows.
#[derive(Debug)]
pub(crate) struct Tail {
    directory: Directory,
    name: String,
    /// Whether what was read is given back to the disk.
    gives_back: bool,
    open: Option<Open>,
    /// Where an earlier process was, until the file is found.
    resume: Position,
    /// The beginning of a line whose end has not been read.
    partial: Vec<u8>,
    /// Whether what comes until the next end of a line belongs to one that is too long.
    is_skipping: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    identity: (u64, u64),
    /// Up to where it was read.
    offset: u64,
    /// Where the line begins whose end has not been read.
    line_start: u64,
    /// Up to where it was given back to the disk.
    returned: u64,
}

impl Tail {
    /// The file `name` in `directory`, from `resume` on if it is still that file.
    pub(crate) const fn new(
        directory: Directory,
        name: String,
        gives_back: bool,
        resume: Position,
    ) -> Self {
        Self {
            directory,
            name,
            gives_back,
            open: None,
            resume,
            partial: Vec::new(),
            is_skipping: false,
        }
    }

    /// Reads the next piece. `bytes` gets it as it is, `line` each line that ends in it. Gives how many bytes were
    /// read: 0 at the end of what is there.
    ///
    /// # Errors
    /// The file is no plain file, or cannot be read.
    pub(crate) fn read(
        &mut self,
        buffer: &mut Vec<u8>,
        mut bytes: impl FnMut(&[u8]),
        mut line: impl FnMut(Line<'_>),
    ) -> Result<usize> {
        buffer.resize(PIECE, 0);
        for _ in 0..2 {
            if self.open.is_none() {
                self.open()?;
            }
            let Some(open) = &mut self.open else {
                return Ok(0);
            };
            let size = open.file.metadata().map_or(0, |found| found.len());
            if size < open.offset {
                // Begun anew. What had no end will have none.
                (open.offset, open.line_start, open.returned) = (0, 0, 0);
                self.finish(&mut line);
                continue;
            }
            let count = open
                .file
                .read_at(buffer, open.offset)
                .with_context(|| format!("failed to read {}", self.name))?;
            let Some(piece) = buffer.get(..count).filter(|piece| !piece.is_empty()) else {
                // All of it is read. Another file may have its name by now.
                if self.directory.identity(&self.name) == Some(open.identity) {
                    return Ok(0);
                }
                self.open = None;
                self.finish(&mut line);
                continue;
            };
            open.offset += length(piece);
            let last = piece.rsplit(|byte| *byte == b'\n').next();
            if let Some(rest) = last.filter(|rest| rest.len() < piece.len()) {
                open.line_start = open.offset - length(rest);
            }
            bytes(piece);
            self.split(piece, &mut line);
            self.give_back();
            return Ok(count);
        }
        Ok(0)
    }

    fn open(&mut self) -> Result<()> {
        use std::os::unix::fs::MetadataExt as _;

        let Some(file) = self.directory.read(&self.name)? else {
            return Ok(());
        };
        let found = file
            .metadata()
            .with_context(|| format!("failed to look at {}", self.name))?;
        let resume = std::mem::take(&mut self.resume);
        let is_same = resume.file == found.ino() && resume.offset <= found.len();
        let offset = if is_same { resume.offset } else { 0 };
        self.open = Some(Open {
            file,
            identity: (found.dev(), found.ino()),
            offset,
            line_start: offset,
            returned: 0,
        });
        Ok(())
    }

    fn split(&mut self, mut piece: &[u8], line: &mut impl FnMut(Line<'_>)) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let head = &piece[..end];
            piece = &piece[end + 1..];
            if self.partial.is_empty() && !self.is_skipping {
                line(Line {
                    bytes: head,
                    was_cut: false,
                });
            } else {
                self.keep(head);
                self.finish(line);
            }
        }
        self.keep(piece);
    }

    /// Adds to the line that has no end yet.
    fn keep(&mut self, piece: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.partial.len());
        let kept = &piece[..room.min(piece.len())];
        self.is_skipping |= kept.len() < piece.len();
        self.partial.extend_from_slice(kept);
    }

    /// Takes what has no end for a line.
    pub(crate) fn finish(&mut self, line: &mut impl FnMut(Line<'_>)) {
        let (partial, was_cut) = (
            std::mem::take(&mut self.partial),
            std::mem::take(&mut self.is_skipping),
        );
        if !partial.is_empty() {
            line(Line {
                bytes: &partial,
                was_cut,
            });
        }
    }

    /// Up to where whole lines were read.
    pub(crate) fn position(&self) -> Option<Position> {
        let open = self.open.as_ref()?;
        Some(Position {
            file: open.identity.1,
            offset: open.line_start,
        })
    }

    fn give_back(&mut self) {
        let Some(position) = self.position().filter(|_| self.gives_back) else {
            return;
        };
        let Some(open) = &mut self.open else { return };
        let upto = position.offset / RETURNED * RETURNED;
        if upto > open.returned {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where it cannot be done, the file stays as it is.
            let _ = rustix::fs::fallocate(&open.file, flags, open.returned, upto - open.returned);
            open.returned = upto;
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
