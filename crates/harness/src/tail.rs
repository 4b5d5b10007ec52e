//! A file that grows by appended lines, read as it grows.
//!
//! The agent's raw output is a regular file, not a pipe. Images append to it (`>>`, `tee -a`) or truncate it (`>`),
//! which works on a regular file also without a reader. A pipe would block the agent while this container restarts, and
//! its content would be lost. The cost: if a file is truncated and filled beyond the last read position before the next
//! read, the reader continues at a wrong position, so an agent that uses `>` for each line should use `>>`. The file
//! would also fill the volume of a long run, so the space of the data that was read is freed where the file system
//! supports this (holes).

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Result};
use rustix::fs::FallocateFlags;

use crate::directory::Directory;

/// The maximum length of a line in bytes. The rest of a longer line is skipped.
pub(crate) const MAX_LINE: usize = 1024 * 1024;
/// The size of one read, in bytes.
const PIECE: usize = 64 * 1024;
/// The number of bytes that are freed at once.
const RETURNED: u64 = 1024 * 1024;

/// The position up to which a file was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The inode of the file.
    pub(crate) file: u64,
    /// The offset after the last whole line, in bytes.
    pub(crate) offset: u64,
}

/// One line of the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// The bytes without the line feed; at most the first [`MAX_LINE`].
    pub(crate) bytes: &'a [u8],
    /// True if the line was longer.
    pub(crate) was_cut: bool,
}

/// A file that is read as it grows.
#[derive(Debug)]
pub(crate) struct Tail {
    directory: Directory,
    name: String,
    /// True if the space of the data that was read is freed.
    gives_back: bool,
    open: Option<Open>,
    /// The position of an earlier process, until the file is found.
    resume: Position,
    /// The beginning of an incomplete line.
    partial: Vec<u8>,
    /// True if the data up to the next line feed belongs to a line that is too long.
    is_skipping: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    identity: (u64, u64),
    /// The position up to which the file was read.
    offset: u64,
    /// The position of the incomplete line.
    line_start: u64,
    /// The position up to which the space was freed.
    returned: u64,
}

impl Tail {
    /// Creates a reader of the file `name` in `directory`. It continues at `resume` if that is the same file.
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

    /// Reads the next piece. Passes the piece unchanged to `bytes`, and each line that ends in it to `line`. Returns
    /// the number of bytes that were read: 0 at the end of the file.
    ///
    /// # Errors
    /// When the file is not a regular file, or cannot be read.
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
                // The file was truncated: the incomplete line is passed on as it is.
                (open.offset, open.line_start, open.returned) = (0, 0, 0);
                self.finish(&mut line);
                continue;
            }
            let count = open
                .file
                .read_at(buffer, open.offset)
                .with_context(|| format!("failed to read {}", self.name))?;
            let Some(piece) = buffer.get(..count).filter(|piece| !piece.is_empty()) else {
                // The file is read to its end. Another file may have its name by now.
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
            .with_context(|| format!("failed to inspect {}", self.name))?;
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

    /// Adds to the incomplete line.
    fn keep(&mut self, piece: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.partial.len());
        let kept = &piece[..room.min(piece.len())];
        self.is_skipping |= kept.len() < piece.len();
        self.partial.extend_from_slice(kept);
    }

    /// Passes on the incomplete line as a line.
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

    /// Returns the position after the last whole line.
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
            // If the file system does not support this, the file is unchanged.
            let _ = rustix::fs::fallocate(&open.file, flags, open.returned, upto - open.returned);
            open.returned = upto;
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
