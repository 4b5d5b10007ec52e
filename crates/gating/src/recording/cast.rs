//! The lines of a recording: asciicast v2, a header and events, each one line of JSON. What the `oz` object of the
//! header says is about the session, and about where in it a part stands.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The longest line that is read, in bytes.
pub const MAX_LINE: usize = 8 << 20;

/// The first line of each part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// 2.
    pub version: u8,
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
    /// When the session was opened, in seconds since 1970.
    pub timestamp: i64,
    /// About the session.
    pub oz: About,
}

/// About a session and a part of its recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    /// `NAMESPACE/REQUEST/SESSION`.
    pub session: String,
    /// UID of the request.
    pub request_uid: String,
    /// `ExecAccessRequest` or `PodAccessRequest`.
    pub request_kind: String,
    /// Name of the user.
    pub user: String,
    /// The identity provider's unique id, if it gave one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user_uid: String,
    /// The pod.
    pub pod: String,
    /// Its UID.
    pub pod_uid: String,
    /// The container, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// `exec` or `attach`.
    pub way: String,
    /// Whether on a terminal.
    pub tty: bool,
    /// The command, as far as the template has it kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Digest of the whole command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_digest: Option<String>,
    /// When the session was opened.
    pub opened_at: Timestamp,
    /// Which part this is, from 0.
    #[serde(default)]
    pub part: u32,
    /// The head of the recording before this part.
    #[serde(default)]
    pub previous: String,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Code {
    /// Was shown.
    #[serde(rename = "o")]
    Output,
    /// Was typed or piped in.
    #[serde(rename = "i")]
    Input,
    /// The terminal has another size: `COLUMNSxROWS`.
    #[serde(rename = "r")]
    Resize,
    /// Something that oz says about the session.
    #[serde(rename = "m")]
    Mark,
    /// What the event before this one was, in bytes (base64): it was no UTF-8. Players pass over it.
    #[serde(rename = "b")]
    Bytes,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event(
    /// Seconds since the session was opened.
    pub f64,
    /// What happened.
    pub Code,
    /// With what.
    pub String,
);

impl Event {
    /// One `at` this long after the session was opened.
    #[must_use]
    pub fn new(at: Duration, code: Code, data: impl Into<String>) -> Self {
        // To the microsecond: whoever reads the lines reads these numbers.
        let micros = u32::try_from(at.as_micros() % 1_000_000).unwrap_or_default();
        let seconds = u32::try_from(at.as_secs()).unwrap_or(u32::MAX);
        Self(
            f64::from(seconds) + f64::from(micros) / 1e6,
            code,
            data.into(),
        )
    }
}

/// A part as it is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its first line.
    pub header: Header,
    /// The others.
    pub events: Vec<Event>,
}

impl Part {
    /// Reads the lines of a part.
    ///
    /// # Errors
    /// Which line is none of asciicast v2 with oz's header.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let mut lines = text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let first = lines.next().ok_or("it is empty")?;
        let header: Header = serde_json::from_slice(first)
            .map_err(|error| format!("line 1 is no header of a recording by oz: {error}"))?;
        if header.version != 2 {
            return Err(format!(
                "it is asciicast v{}, and only v2 is read",
                header.version
            ));
        }
        let events = lines.zip(2_usize..).map(|(line, number)| {
            if line.len() > MAX_LINE {
                return Err(format!("line {number} has over {MAX_LINE} bytes"));
            }
            serde_json::from_slice(line)
                .map_err(|error| format!("line {number} is no event: {error}"))
        });
        let events = events.collect::<Result<_, _>>()?;
        Ok(Self { header, events })
    }
}
