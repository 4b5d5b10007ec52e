//! The log: one line of JSON for each record, on standard output or in a file. A separate thread writes, so that a
//! reader that stops reading delays only the callers that require a record. Data that cannot be written is kept and
//! retried, from the first byte that is missing; data that could not be forced to the disk is written again to the same
//! position.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use oz_config::{Fsync, LogTarget};
use parking_lot::{Condvar, Mutex};

use crate::Trail;
use crate::outlets::{Intake, Outlet, Written};

/// The pause before a failed write is retried.
const AGAIN: Duration = Duration::from_millis(200);
/// The maximum number of lines that are written at once.
const BATCH: usize = 256;

/// A queue of lines to be written, in order.
#[derive(Clone, Default)]
pub(crate) struct LineQueue(Arc<Waiting>);

#[derive(Default)]
struct Waiting {
    lines: Mutex<Vec<Line>>,
    more: Condvar,
}

/// A record with its position in the chain, or a checkpoint.
type Line = (Option<u64>, Arc<str>);

impl LineQueue {
    fn push(&self, seq: Option<u64>, line: Arc<str>) {
        let mut lines = self.0.lines.lock();
        lines.push((seq, line));
        self.0.more.notify_one();
    }

    fn take(&self) -> Vec<Line> {
        let mut lines = self.0.lines.lock();
        while lines.is_empty() {
            self.0.more.wait(&mut lines);
        }
        let batch = lines.len().min(BATCH);
        lines.drain(..batch).collect()
    }
}

impl Intake for LineQueue {
    fn record(&self, written: &Written) -> u64 {
        self.push(Some(written.entry.link.seq), written.line.clone());
        0
    }

    fn checkpoint(&self, line: &str) {
        self.push(None, line.into());
    }
}

/// The open destination of the log.
pub(crate) enum Out {
    Stdout(io::Stdout),
    File {
        file: File,
        /// The same file, opened a second time: a file that is opened for appending writes to its end only.
        again: File,
    },
}

impl Out {
    /// Opens the destination of the log; `None` without a log.
    pub(crate) fn open(target: &LogTarget) -> anyhow::Result<Option<Self>> {
        match target {
            LogTarget::Stdout => Ok(Some(Self::Stdout(io::stdout()))),
            LogTarget::None => Ok(None),
            LogTarget::File(path) => Self::file(path)
                .map(Some)
                .with_context(|| format!("failed to open {} (audit.log)", path.display())),
        }
    }

    /// Opens a file for appending. Ends an incomplete line that a killed process left.
    pub(crate) fn file(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(path)?;
        let again = OpenOptions::new().write(true).open(path)?;
        keep_name(path)?;
        if file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            let mut last = [0];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self::File { file, again })
    }
}

/// Forces the name of a file to the disk: before that, a new file has no name there.
fn keep_name(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
    let synced = File::open(directory.unwrap_or(Path::new(".")))?.sync_all();
    match synced {
        // Some file systems do not support this, and report it.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

/// The device to which a [`Batch`] is written.
trait Device {
    /// Appends some of the bytes. Returns their number, and their position if they can be written there again.
    fn append(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<u64>)>;
    /// Writes to a position that was written before.
    fn rewrite(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the written data durable.
    fn settle(&mut self, fsync: Fsync) -> io::Result<()>;
}

impl Device for Out {
    fn append(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<u64>)> {
        match self {
            Self::Stdout(out) => Ok((out.write(bytes)?, None)),
            Self::File { file, .. } => {
                let written = file.write(bytes)?;
                // After an append, the position is the end of the appended data, even if other processes append.
                let end = file.stream_position().ok();
                let length = u64::try_from(written).unwrap_or(u64::MAX);
                Ok((written, end.and_then(|end| end.checked_sub(length))))
            }
        }
    }

    fn rewrite(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(_) => Ok(()),
            Self::File { again, .. } => again.write_all_at(bytes, at),
        }
    }

    fn settle(&mut self, fsync: Fsync) -> io::Result<()> {
        match (self, fsync) {
            (Self::Stdout(out), _) => out.flush(),
            (Self::File { file, .. }, Fsync::Always) => file.sync_data(),
            (Self::File { .. }, Fsync::Never) => Ok(()),
        }
    }
}

/// A batch of lines that become durable together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    written: usize,
    /// The positions of its parts.
    parts: Vec<(u64, Range<usize>)>,
    /// Linux drops data that it failed to force to the disk, and reports success on the next attempt; such data is
    /// marked here.
    doubtful: bool,
}

impl Batch {
    /// Continues from the position that the preceding attempt reached.
    fn attempt(&mut self, out: &mut impl Device, fsync: Fsync) -> io::Result<()> {
        while self.written < self.bytes.len() {
            match out.append(&self.bytes[self.written..]) {
                Ok((0, _)) => return Err(io::ErrorKind::WriteZero.into()),
                Ok((count, at)) => {
                    let part = self.written..self.written + count;
                    self.written = part.end;
                    self.parts.extend(at.map(|at| (at, part)));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.doubtful {
            for (at, part) in &self.parts {
                out.rewrite(*at, &self.bytes[part.clone()])?;
            }
        }
        let settled = out.settle(fsync);
        self.doubtful |= settled.is_err();
        settled
    }
}

/// Starts the thread that writes the log.
pub(crate) fn start(trail: Trail, lines: LineQueue, mut out: Out, fsync: Fsync) -> io::Result<()> {
    let write = move || {
        loop {
            let batch = lines.take();
            let mut together = Batch::default();
            for (_, line) in &batch {
                together.bytes.extend_from_slice(line.as_bytes());
                together.bytes.push(b'\n');
            }
            insist(&trail, || together.attempt(&mut out, fsync));
            for seq in batch.iter().filter_map(|(seq, _)| *seq) {
                trail.arrived(seq, Outlet::Log);
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
            tracing::error!(%error, "failed to write the audit log; retrying");
        }
        failures += 1;
        std::thread::sleep(AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that accepts a few bytes at a time, and loses the data that it fails to store.
    #[derive(Default)]
    struct Disk {
        cached: Vec<u8>,
        kept: Vec<u8>,
        /// The first byte of the cache that is not stored yet.
        dirty: Option<usize>,
        failures: u32,
    }

    impl Disk {
        fn dirtied(&mut self, at: usize) {
            self.dirty = Some(self.dirty.map_or(at, |dirty| dirty.min(at)));
        }
    }

    impl Device for Disk {
        fn append(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<u64>)> {
            let (at, count) = (self.cached.len(), bytes.len().min(5));
            self.cached.extend_from_slice(&bytes[..count]);
            self.dirtied(at);
            Ok((count, Some(at as u64)))
        }

        fn rewrite(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
            let at = usize::try_from(at).map_err(io::Error::other)?;
            self.cached[at..at + bytes.len()].copy_from_slice(bytes);
            self.dirtied(at);
            Ok(())
        }

        fn settle(&mut self, _: Fsync) -> io::Result<()> {
            let dirty = self.dirty.take();
            if self.failures > 0 {
                self.failures -= 1;
                return Err(io::ErrorKind::Other.into());
            }
            if let Some(from) = dirty {
                self.kept.resize(self.cached.len(), 0);
                self.kept[from..].copy_from_slice(&self.cached[from..]);
            }
            Ok(())
        }
    }

    #[test]
    fn failed_fsync_is_retried_without_duplicate_lines() {
        for failures in 0..3 {
            let mut disk = Disk::default();
            let mut log = Vec::new();
            for line in ["{\"seq\":1}\n", "{\"seq\":2}\n"] {
                disk.failures = failures;
                let mut batch = Batch {
                    bytes: line.into(),
                    ..Batch::default()
                };
                let mut attempts = 1;
                while batch.attempt(&mut disk, Fsync::Always).is_err() {
                    attempts += 1;
                }
                assert_eq!(attempts, failures + 1);
                log.extend_from_slice(line.as_bytes());
                assert_eq!(disk.kept, log);
            }
        }
    }

    #[test]
    fn a_file_is_appended_to_and_written_again_in_place() {
        let directory = std::env::temp_dir().join(format!("oz-log-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("operator.jsonl");
        std::fs::write(&path, "half a li").unwrap();
        let mut out = Out::file(&path).unwrap();
        let (_, at) = out.append(b"one\n").unwrap();
        out.append(b"two\n").unwrap();
        out.rewrite(at.unwrap(), b"ONE\n").unwrap();
        out.append(b"three\n").unwrap();
        out.settle(Fsync::Always).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(text, "half a li\nONE\ntwo\nthree\n");
    }
}
