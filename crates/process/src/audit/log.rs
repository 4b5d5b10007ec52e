//! The log: one line of JSON for each record, on standard output or in a file. A thread of its own
//! writes, so that a reader who stops reading holds up nobody but those who need the record. What
//! cannot be written is kept and tried again, from the very byte that is missing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::Trail;
use super::args::Fsync;
use super::ledger::Place;

/// How long to wait before a failed write is tried again.
const AGAIN: Duration = Duration::from_millis(200);
/// How many lines are written at once.
const BATCH: usize = 256;

/// Lines to be written, in order.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Waiting>);

#[derive(Default)]
struct Waiting {
    lines: Mutex<Vec<Line>>,
    more: Condvar,
}

/// A record with its place in the chain, or a checkpoint.
type Line = (Option<u64>, Arc<str>);

impl Lines {
    pub(super) fn push(&self, seq: Option<u64>, line: Arc<str>) {
        let mut lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push((seq, line));
        self.0.more.notify_one();
    }

    fn take(&self) -> Vec<Line> {
        let mut lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        while lines.is_empty() {
            lines = self
                .0
                .more
                .wait(lines)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let batch = lines.len().min(BATCH);
        lines.drain(..batch).collect()
    }
}

/// Where the log is.
pub(super) enum Out {
    Stdout(io::Stdout),
    File(File),
}

impl Out {
    /// Opens a file to append to. Half a line, left by a process that was killed, is ended.
    pub(super) fn file(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(path)?;
        if file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            let mut last = [0];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self::File(file))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn settle(&mut self, fsync: Fsync) -> io::Result<()> {
        match (self, fsync) {
            (Self::Stdout(out), _) => out.flush(),
            (Self::File(file), Fsync::Always) => file.sync_data(),
            (Self::File(_), Fsync::Never) => Ok(()),
        }
    }
}

/// What `--audit-log` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Standard output.
    Stdout,
    /// This file.
    File(PathBuf),
    /// Nowhere.
    None,
}

impl std::str::FromStr for Target {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "stdout" | "-" => Self::Stdout,
            "none" => Self::None,
            path => Self::File(path.into()),
        })
    }
}

/// Starts the thread that writes.
pub(super) fn start(trail: Trail, lines: Lines, mut out: Out, fsync: Fsync) -> io::Result<()> {
    let write = move || {
        loop {
            let batch = lines.take();
            let mut bytes = Vec::new();
            for (_, line) in &batch {
                bytes.extend_from_slice(line.as_bytes());
                bytes.push(b'\n');
            }
            insist(&trail, || {
                while !bytes.is_empty() {
                    match out.write(&bytes) {
                        Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                        Ok(written) => drop(bytes.drain(..written)),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                out.settle(fsync)
            });
            for seq in batch.iter().filter_map(|(seq, _)| *seq) {
                trail.arrived(seq, Place::LOG);
            }
        }
    };
    std::thread::Builder::new()
        .name("records".to_owned())
        .spawn(write)
        .map(drop)
}

fn insist(trail: &Trail, mut attempt: impl FnMut() -> io::Result<()>) {
    let mut failures = 0_u64;
    while let Err(error) = attempt() {
        trail.shared.meters.failed("log");
        if failures.is_multiple_of(50) {
            tracing::error!(%error, "the audit log cannot be written; trying again");
        }
        failures += 1;
        std::thread::sleep(AGAIN);
    }
}
