//! What is remembered of a session beside its parts: how far its chain is. It is written after a part is there and
//! before anybody else may see that part, so that a part that was given away is never made anew.

use std::path::Path;
use std::{fs, io};

use oz_gating::recording::{Head, Header, SessionKey};
use oz_recording::age::Recipient;
use serde::{Deserialize, Serialize};

use super::disk::Disk;

/// Its name in the directory of a session.
pub(super) const NAME: &str = "state.json";
/// How long a header may be that is remembered.
pub(super) const MAX_HEADER: usize = 64 << 10;
/// How much of a file is read as a state.
const MAX_STATE: u64 = 8 * MAX_HEADER as u64;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    session: String,
    parts: u32,
    digest: String,
    /// The first line of the recording, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) header: Option<String>,
    /// To whom it is encrypted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    recipients: Vec<String>,
    /// Whether nobody has to be told of it any more.
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

    /// The same after one more part.
    pub(super) fn after(&self, stored: &[u8]) -> Self {
        let Head { parts, digest } = self.head().after(stored);
        Self {
            parts,
            digest,
            ..self.clone()
        }
    }

    /// The same with the header that these lines begin with; of one that is encrypted, what the audit trail has as
    /// well.
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

    /// The user whose session it is, if the header says so.
    pub(super) fn user(&self) -> Option<String> {
        let header: Header = serde_json::from_str(self.header.as_deref()?).ok()?;
        Some(header.oz.user)
    }

    /// To whom it is encrypted.
    pub(super) fn recipients(&self) -> Vec<Recipient> {
        let read = self.recipients.iter().filter_map(|one| one.parse().ok());
        read.collect()
    }

    pub(super) fn write(&self, disk: &Disk, directory: &Path, sync: bool) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        disk.replace(&directory.join(NAME), &text, sync)
    }

    /// `None` if there is none.
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

/// The header in this line, without what may be of the recording's content.
fn without_command(line: &[u8]) -> Option<String> {
    let mut header: Header = serde_json::from_slice(line).ok()?;
    header.oz.command.clear();
    header.oz.command_digest = None;
    serde_json::to_string(&header).ok()
}
