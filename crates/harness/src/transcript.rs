//! The transcript of a run: a folder in its workspace that the agent can write, too. If a file there cannot be written,
//! the log reports it once, the data is left out, and the run continues.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Result};

use crate::convert::{self, Event};
use crate::directory::Directory;
use crate::log::Complaint;

/// The file with the events.
pub(crate) const EVENTS: &str = "events.jsonl";
/// The file with the unchanged output of the agent.
const RAW: &str = "raw.jsonl";
/// The number of bytes of earlier events that are read after a restart.
const RECENT: u64 = 128 * 1024;

/// A file to which lines are appended.
#[derive(Debug)]
struct Log {
    name: &'static str,
    /// True if the last line may be incomplete: this process has not written yet, or the last write failed.
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
        // Opened for each write: the agent may have removed or replaced the file.
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
    /// The folder.
    pub(crate) directory: Directory,
    events: Log,
    raw: Log,
}

impl Transcript {
    /// Creates the transcript in a folder.
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

    /// Appends output of the agent.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.raw.append(&self.directory, bytes);
    }

    /// Returns the last events in the transcript.
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
        // The first line may be incomplete; lines that are not whole events are left out.
        text.lines().filter_map(convert::passed_on).collect()
    }
}
