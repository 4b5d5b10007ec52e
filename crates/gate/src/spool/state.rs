//! The stored state of a session in addition to its parts: the head of its chain. It is written after a part exists and
//! before a reader may see that part, so that a part that a reader may have seen is never made anew.

use std::path::Path;
use std::{fs, io};

use oz_gating::recording::{Head, Header, SessionKey};
use oz_recording::age::Recipient;
use serde::{Deserialize, Serialize};

use super::disk::Disk;

/// The name of the state file in the directory of a session.
pub(super) const NAME: &str = "state.json";
/// The maximum size of a remembered header, in bytes.
pub(super) const MAX_HEADER: usize = 64 << 10;
/// The maximum size of a state file that is read, in bytes.
const MAX_STATE: u64 = 8 * MAX_HEADER as u64;

/// The state of the [module](self).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    session: String,
    parts: u32,
    digest: String,
    /// The first line of the recording, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) header: Option<String>,
    /// The recipients for the encryption of the recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    recipients: Vec<String>,
    /// True if the session needs no further audit record.
    #[serde(default)]
    pub(super) finished: bool,
}

impl State {
    pub(super) fn new(key: &SessionKey) -> Self {
        let session = key.to_string();
        let Head { parts, digest } = Head::start(&session);
        Self {
            session,
            parts,
            digest,
            header: None,
            recipients: Vec::new(),
            finished: false,
        }
    }

    pub(super) fn head(&self) -> Head {
        Head {
            parts: self.parts,
            digest: self.digest.clone(),
        }
    }

    /// Returns the state after one more part.
    pub(super) fn after(&self, stored: &[u8]) -> Self {
        let Head { parts, digest } = self.head().after(stored);
        Self {
            parts,
            digest,
            ..self.clone()
        }
    }

    /// Returns the state with the header with which these lines begin; of an encrypted recording, only the fields that
    /// the audit trail contains as well.
    pub(super) fn with_header(mut self, lines: &[u8], recipients: &[Recipient]) -> Self {
        let line = lines.split(|byte| *byte == b'\n').next();
        let line = line.filter(|line| line.len() <= MAX_HEADER);
        self.header = if recipients.is_empty() {
            line.and_then(|line| String::from_utf8(line.to_vec()).ok())
        } else {
            line.and_then(without_command)
        };
        self.recipients = recipients.iter().map(Recipient::to_string).collect();
        self
    }

    /// Returns the user of the session, if the header names the user.
    pub(super) fn user(&self) -> Option<String> {
        let header: Header = serde_json::from_str(self.header.as_deref()?).ok()?;
        Some(header.oz.user)
    }

    /// Returns the recipients for the encryption of the recording.
    pub(super) fn recipients(&self) -> Vec<Recipient> {
        let read = self.recipients.iter().filter_map(|one| one.parse().ok());
        read.collect()
    }

    pub(super) fn write(&self, disk: &Disk, directory: &Path, sync: bool) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        disk.replace(&directory.join(NAME), &text, sync)
    }

    /// Reads the state; `None` if the file does not exist.
    pub(super) fn read(directory: &Path, key: &SessionKey) -> io::Result<Option<Self>> {
        let path = directory.join(NAME);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.len() > MAX_STATE => {
                return Err(io::Error::other(format!("{NAME} is too large")));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let state: Self = serde_json::from_slice(&fs::read(path)?)?;
        if state.session != key.to_string() {
            let why = format!("{NAME} is about {:?}", state.session);
            return Err(io::Error::other(why));
        }
        Ok(Some(state))
    }
}

/// Returns the header in this line, without fields that may contain content of the recording.
fn without_command(line: &[u8]) -> Option<String> {
    let mut header: Header = serde_json::from_slice(line).ok()?;
    header.oz.command.clear();
    header.oz.command_digest = None;
    serde_json::to_string(&header).ok()
}
