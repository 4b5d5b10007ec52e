//! The conversion of the data of a session into the lines of its recording.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use oz_api::encode::hex;
use oz_api::{NonInteractive, RecordedInput, RecordingConfig};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::cast::{About, Code, Event, Header};
use super::chain::Head;
use super::echo::{Echo, Typed};

/// The duration after which a part is full.
const PART_TIME: Duration = Duration::from_secs(30);
/// The number of bytes of lines at which a part is full.
const PART_BYTES: usize = 4 << 20;
/// The number of bytes of each stream that are recorded without a terminal, if only its beginning is recorded.
pub const KEPT: u64 = 1 << 20;
/// The maximum length of the text of one event, in bytes.
const MAX_TEXT: usize = 64 << 10;
/// The assumed size of a terminal until the client sends its size.
const SIZE: (u16, u16) = (80, 24);

/// A stream of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Stream {
    /// Standard input.
    Stdin,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

const STREAMS: [Stream; 3] = [Stream::Stdin, Stream::Stdout, Stream::Stderr];

/// The writer of the lines of a recording. All times count from the opening of the session.
#[derive(Debug)]
pub struct Recorder {
    about: About,
    timestamp: i64,
    size: (u16, u16),
    input: RecordedInput,
    /// True if only the beginning of each stream is recorded.
    digests: bool,
    echo: Echo,
    streams: [Followed; 3],
    lines: Vec<u8>,
    /// The time of the last event. Input is recorded once it is decided, and times do not decrease.
    last: Duration,
    part: PartState,
}

/// The state of the part that is being written.
#[derive(Debug)]
struct PartState {
    began: Duration,
    bytes: usize,
    /// True if the header of the part was written.
    headed: bool,
}

/// The state of one stream.
#[derive(Clone, Debug, Default)]
struct Followed {
    bytes: u64,
    digest: Sha256,
    /// The first bytes of a letter that is still incomplete.
    begun: Vec<u8>,
}

impl Recorder {
    /// Creates the recorder of a session without data; `about` has no part and no head yet.
    #[must_use]
    pub fn new(about: About, config: &RecordingConfig) -> Self {
        let start = Head::start(&about.session);
        Self {
            timestamp: about.opened_at.as_second(),
            size: SIZE,
            input: config.input,
            digests: !about.tty && config.kept_without_terminal() == NonInteractive::Digest,
            echo: Echo::default(),
            streams: Default::default(),
            lines: Vec::new(),
            last: Duration::ZERO,
            part: PartState {
                began: Duration::ZERO,
                bytes: 0,
                headed: false,
            },
            about: About {
                part: 0,
                previous: start.digest,
                ..about
            },
        }
    }

    /// Records data of a stream.
    pub fn passed(&mut self, at: Duration, stream: Stream, bytes: &[u8]) {
        let followed = &mut self.streams[stream as usize];
        let kept = if self.digests {
            let room = KEPT.saturating_sub(followed.bytes);
            &bytes[..usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len())]
        } else {
            bytes
        };
        followed.bytes += bytes.len() as u64;
        if !self.about.tty {
            followed.digest.update(bytes);
        }
        let keeps = stream != Stream::Stdin || self.input != RecordedInput::None;
        if keeps && !kept.is_empty() {
            let (text, exactly) = followed.text(kept);
            self.said(at, stream, &text, exactly.as_deref());
        }
    }

    fn said(&mut self, at: Duration, stream: Stream, text: &str, exactly: Option<&[u8]>) {
        let echoes = self.about.tty && self.input == RecordedInput::Echoed;
        if stream == Stream::Stdin && echoes {
            let typed = self.echo.typed(at, text);
            return self.typed(typed);
        }
        if echoes {
            let typed = self.echo.add_output(at, text);
            self.typed(typed);
        }
        let code = if stream == Stream::Stdin {
            Code::Input
        } else {
            Code::Output
        };
        self.text(at, code, text);
        if let Some(bytes) = exactly {
            self.event(at, Code::Bytes, BASE64_STANDARD.encode(bytes));
        }
    }

    /// Records a new size of the terminal.
    pub fn resized(&mut self, at: Duration, columns: u16, rows: u16) {
        self.size = (columns, rows);
        if self.part.headed {
            self.event(at, Code::Resize, format!("{columns}x{rows}"));
        }
    }

    /// Records a message of oz about the session.
    pub fn mark(&mut self, at: Duration, text: &str) {
        self.event(at, Code::Mark, format!("oz: {text}"));
    }

    /// Records the input after its timeout for the echo.
    pub fn tick(&mut self, at: Duration) {
        let typed = self.echo.passed(at);
        self.typed(typed);
    }

    /// Returns the lines since the previous call.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.lines)
    }

    /// Returns the number of bytes of lines that were not taken yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lines.len()
    }

    /// Returns whether the part has any line.
    #[must_use]
    pub const fn is_begun(&self) -> bool {
        self.part.headed
    }

    /// Returns whether the part must be closed at this time.
    #[must_use]
    pub fn is_full(&self, at: Duration) -> bool {
        self.part.headed
            && (self.part.bytes >= PART_BYTES || at.saturating_sub(self.part.began) >= PART_TIME)
    }

    /// Begins the next part, which contains the lines that were not taken yet; `head` is the head of the recording
    /// after the preceding part, all lines of which were taken.
    pub fn next_part(&mut self, at: Duration, head: &Head) {
        self.part = PartState {
            began: at,
            bytes: 0,
            headed: false,
        };
        self.about.part = head.parts;
        self.about.previous.clone_from(&head.digest);
        let waiting = std::mem::take(&mut self.lines);
        if !waiting.is_empty() {
            self.header(at);
            self.part.bytes += waiting.len();
            self.lines.extend(waiting);
        }
    }

    /// Records the end of the session and its reason.
    pub fn end(&mut self, at: Duration, why: &str) {
        for stream in STREAMS {
            let begun = std::mem::take(&mut self.streams[stream as usize].begun);
            if !begun.is_empty() {
                let text = String::from_utf8_lossy(&begun).into_owned();
                self.said(at, stream, &text, Some(&begun));
            }
        }
        let typed = self.echo.end();
        self.typed(typed);
        if !self.about.tty {
            for stream in STREAMS {
                let Some((bytes, digest)) = self.digest_of(stream) else {
                    continue;
                };
                let cut = if self.digests && bytes > KEPT {
                    format!(", of which the first {KEPT} are kept")
                } else {
                    String::new()
                };
                self.mark(at, &format!("{stream}: {bytes} bytes{cut}, {digest}"));
            }
        }
        self.mark(at, why);
    }

    /// Returns the number of bytes of a stream, and its digest; `None` if it had no data.
    #[must_use]
    pub fn digest_of(&self, stream: Stream) -> Option<(u64, String)> {
        let followed = &self.streams[stream as usize];
        let digest = hex(&followed.digest.clone().finalize());
        (followed.bytes > 0).then(|| (followed.bytes, format!("sha256:{digest}")))
    }

    fn typed(&mut self, typed: Vec<Typed>) {
        for Typed { at, text } in typed {
            self.text(at, Code::Input, &text);
        }
    }

    fn text(&mut self, at: Duration, code: Code, mut text: &str) {
        while !text.is_empty() {
            let (now, rest) = text.split_at(text.floor_char_boundary(MAX_TEXT));
            self.event(at, code, now);
            text = rest;
        }
    }

    fn event(&mut self, at: Duration, code: Code, data: impl Into<String>) {
        if !self.part.headed {
            self.header(at);
        }
        self.last = self.last.max(at);
        self.line(&Event::new(self.last, code, data));
    }

    /// Writes the first line of a part.
    fn header(&mut self, at: Duration) {
        self.part.headed = true;
        self.part.began = at;
        let (width, height) = self.size;
        let header = Header {
            version: 2,
            width,
            height,
            timestamp: self.timestamp,
            oz: self.about.clone(),
        };
        self.line(&header);
    }

    fn line(&mut self, line: &impl Serialize) {
        let before = self.lines.len();
        // Neither call can fail: the types are plain, and the destination is memory.
        let _ = serde_json::to_writer(&mut self.lines, line);
        self.lines.push(b'\n');
        self.part.bytes += self.lines.len() - before;
    }
}

impl Followed {
    /// Returns the bytes as text, after the incomplete letter from the previous call, and as bytes if they are not
    /// UTF-8.
    fn text(&mut self, bytes: &[u8]) -> (String, Option<Vec<u8>>) {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        if let Err(error) = std::str::from_utf8(&all)
            && error.error_len().is_none()
        {
            self.begun = all.split_off(error.valid_up_to());
        }
        match String::from_utf8(all) {
            Ok(text) => (text, None),
            Err(error) => {
                let bytes = error.into_bytes();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                (text, Some(bytes))
            }
        }
    }
}
