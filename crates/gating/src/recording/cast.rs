//! The lines of a recording in asciicast v2: a header and events, each as one line of JSON. The `oz` object of the
//! header describes the session, and the position of a part in it.
//! See <https://docs.asciinema.org/manual/asciicast/v2/>.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The maximum length of a line that is read, in bytes.
pub const MAX_LINE: usize = 8 << 20;

/// The first line of each part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of asciicast: 2.
    pub version: u8,
    /// The number of columns.
    pub width: u16,
    /// The number of rows.
    pub height: u16,
    /// The time at which the session was opened, in seconds since 1970.
    pub timestamp: i64,
    /// The description of the session.
    pub oz: About,
}

/// The description of a session and of one part of its recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    /// `NAMESPACE/REQUEST/SESSION`.
    pub session: String,
    /// The UID of the request.
    pub request_uid: String,
    /// `ExecAccessRequest` or `PodAccessRequest`.
    pub request_kind: String,
    /// The name of the user.
    pub user: String,
    /// The identity provider's unique id, if it gave one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user_uid: String,
    /// The name of the pod.
    pub pod: String,
    /// The UID of the pod.
    pub pod_uid: String,
    /// The name of the container, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// `exec` or `attach`.
    pub way: String,
    /// True for a session on a terminal.
    pub tty: bool,
    /// The command, as far as the template permits its recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The digest of the complete command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_digest: Option<String>,
    /// The time at which the session was opened.
    pub opened_at: Timestamp,
    /// The number of this part, from 0.
    #[serde(default)]
    pub part: u32,
    /// The head of the recording before this part.
    #[serde(default)]
    pub previous: String,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Code {
    /// Output of the session.
    #[serde(rename = "o")]
    Output,
    /// Input, typed or piped.
    #[serde(rename = "i")]
    Input,
    /// A new size of the terminal: `COLUMNSxROWS`.
    #[serde(rename = "r")]
    Resize,
    /// A message of oz about the session.
    #[serde(rename = "m")]
    Mark,
    /// The bytes of the preceding event in base64, if they are not UTF-8. Players skip it.
    #[serde(rename = "b")]
    Bytes,
}

/// One line of a recording after the header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event(
    /// The seconds since the session was opened.
    pub f64,
    /// The type of the event.
    pub Code,
    /// The data of the event.
    pub String,
);

impl Event {
    /// Creates an event at the time `at` since the session was opened.
    #[must_use]
    pub fn new(at: Duration, code: Code, data: impl Into<String>) -> Self {
        // Microseconds: users read these numbers in the lines.
        let micros = at.subsec_micros();
        let seconds = u32::try_from(at.as_secs()).unwrap_or(u32::MAX);
        Self(
            f64::from(seconds) + f64::from(micros) / 1e6,
            code,
            data.into(),
        )
    }
}

/// The reason why a part of a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The part has no line.
    #[error("it is empty")]
    Empty,
    /// The first line is not a header.
    #[error("line 1 is not the header of a recording of oz: {0}")]
    Header(serde_json::Error),
    /// The part has another version of the format.
    #[error("it is asciicast v{0}, and only v2 is supported")]
    Version(u8),
    /// The line of this number is too long.
    #[error("line {0} has over {MAX_LINE} bytes")]
    LineLength(usize),
    /// A line is not an event.
    #[error("line {number} is not an event: {error}")]
    Event {
        /// Number of the line.
        number: usize,
        /// The reason.
        error: serde_json::Error,
    },
}

/// A part of a recording, after reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The first line of the part.
    pub header: Header,
    /// The other lines of the part.
    pub events: Vec<Event>,
}

impl Part {
    /// Reads the lines of a part.
    ///
    /// # Errors
    /// If a line is not a line of asciicast v2 with oz's header. The error names the line.
    pub fn read(text: &[u8]) -> Result<Self, PartError> {
        let mut lines = text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let first = lines.next().ok_or(PartError::Empty)?;
        let header: Header = serde_json::from_slice(first).map_err(PartError::Header)?;
        if header.version != 2 {
            return Err(PartError::Version(header.version));
        }
        let events = lines.zip(2_usize..).map(|(line, number)| {
            if line.len() > MAX_LINE {
                return Err(PartError::LineLength(number));
            }
            serde_json::from_slice(line).map_err(|error| PartError::Event { number, error })
        });
        let events = events.collect::<Result<_, _>>()?;
        Ok(Self { header, events })
    }
}
