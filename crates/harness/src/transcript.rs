//! The transcript of a run: a folder in its workspace that the agent can write, too. What cannot be written there
//! is said once and left out; the run goes on.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Result};

use crate::convert::{self, Event};
use crate::directory::Directory;
use crate::log::Complaint;

/// The events.
pub(crate) const EVENTS: &str = "events.jsonl";
/// What the agent wrote, as it is.
const RAW: &str = "raw.jsonl";
/// How much of earlier events is read again after a restart, in bytes.
const RECENT: u64 = 128 * 1024;

/// A file that lines are appended to.
#[derive(Debug)]
struct Log {
    name: &'static str,
    /// Whether the last line in it may have no end: nothing was written yet, or not all of it.
    may_be_torn: bool,
    complaint: Complaint,
}

impl Log {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            may_be_torn: true,
            complaint: Complaint::silent(),
        }
    }

    fn append(&mut self, directory: &Directory, bytes: &[u8]) {
        // Opened each time: the agent may have removed it, or put something else there.
        let appended = directory
            .append(self.name)
            .and_then(|file| write(&file, bytes, self.may_be_torn));
        self.may_be_torn = appended.is_err();
        self.complaint
            .about(&format!("lines are missing in {}", self.name), appended);
    }
}

fn write(mut file: &File, bytes: &[u8], may_be_torn: bool) -> Result<()> {
    if may_be_torn {
        let length = file.metadata().map_or(0, |found| found.len());
        let mut last = [b'\n'];
        if length > 0 && file.read_exact_at(&mut last, length - 1).is_ok() && last != [b'\n'] {
            file.write_all(b"\n").context("failed to write")?;
        }
    }
    file.write_all(bytes).context("failed to write")
}

/// The transcript of a run.
#[derive(Debug)]
pub(crate) struct Transcript {
    /// Its folder.
    pub(crate) directory: Directory,
    events: Log,
    raw: Log,
}

impl Transcript {
    /// The transcript in a folder.
    pub(crate) const fn new(directory: Directory) -> Self {
        Self {
            directory,
            events: Log::new(EVENTS),
            raw: Log::new(RAW),
        }
    }

    /// Appends lines of events.
    pub(crate) fn events(&mut self, lines: &str) {
        self.events.append(&self.directory, lines.as_bytes());
    }

    /// Appends what the agent wrote.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.raw.append(&self.directory, bytes);
    }

    /// The last events that stand in it.
    pub(crate) fn recent(&self) -> Vec<Event> {
        let Ok(Some(file)) = self.directory.read(EVENTS) else {
            return Vec::new();
        };
        let length = file.metadata().map_or(0, |found| found.len());
        let start = length.saturating_sub(RECENT);
        let Ok(size) = usize::try_from(length - start) else {
            return Vec::new();
        };
        let mut bytes = vec![0; size];
        if file.read_exact_at(&mut bytes, start).is_err() {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(&bytes);
        // The first may have begun before; what is no whole event is left out.
        text.lines().filter_map(convert::passed_on).collect()
    }
}
